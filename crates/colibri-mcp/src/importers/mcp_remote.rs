//! `npx mcp-remote URL`: a program that stands between an editor and a server behind an address,
//! for editors that know no such servers. The entry here is the address itself.
//!
//! The options are those of <https://github.com/geelen/mcp-remote>, 0.1.38.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow, bail};

use super::entry::{ask_for_gaps, gap};
use super::proposal::{
    Field, PackageRegistry, Proposal, ProposedProcess, ProposedProgram, ProposedRemote, Runs,
};
use super::secret::name_says_secret;
use super::template::{Template, TemplatePart};

const NAME: &str = "mcp-remote";
/// Options that are about the program itself, with whether each takes a value.
const ITS_OWN: [(&str, bool); 5] = [
    ("--allow-http", false),
    ("--debug", false),
    ("--silent", false),
    ("--host", true),
    ("--auth-timeout", true),
];
/// Options that an entry says otherwise, where it can.
const OF_THE_ENTRY: [(&str, &str); 5] = [
    ("--enable-proxy", "the key proxy"),
    (
        "--static-oauth-client-info",
        "client and issuer in the key oauth",
    ),
    (
        "--static-oauth-client-metadata",
        "the scopes in the key oauth",
    ),
    (
        "--resource",
        "nothing: the resource of a login is the address",
    ),
    (
        "--disable-resource-parameter",
        "nothing: the resource of a login is the address",
    ),
];

/// The parts of a command line.
#[derive(Debug, Default)]
struct McpRemoteArguments {
    url: Option<Template>,
    headers: BTreeMap<String, Field>,
    transport: String,
    ignored_tools: Vec<String>,
    /// The words that are of no use here.
    left_out: Vec<String>,
    /// The variables that headers use.
    used: BTreeSet<String>,
}

/// Makes a server that is reached by this program one that is reached by its address.
pub(super) fn replace(proposal: &mut Proposal) {
    let process = match &proposal.runs {
        Ok(Runs::Process(process)) if is_mcp_remote(&process.program) => process,
        _ => return,
    };
    let read = McpRemoteArguments::read(process).and_then(|line| {
        let url = line.url.clone().context("it is told no address")?;
        Ok((line, url))
    });
    let (line, url) = match read {
        Ok(read) => read,
        Err(why) => {
            proposal.runs = Err(format!("{NAME}: {why:#}"));
            return;
        }
    };
    let ends_in_sse = url
        .plain()
        .is_some_and(|url| url.trim_end_matches('/').ends_with("/sse"));
    let sse = match line.transport.as_str() {
        "sse-only" | "sse-first" => true,
        "http-only" => false,
        _ => ends_in_sse,
    };
    let mut left_out = line.left_out;
    let unused = process.env.keys().filter(|name| !line.used.contains(*name));
    left_out.extend(unused.map(|name| colibri_text::brief(name, 40)));
    proposal.notes.push(format!(
        "{NAME} is left out: the server is reached by its address"
    ));
    if !left_out.is_empty() {
        let words = colibri_text::brief(&left_out.join(", "), 400);
        proposal
            .notes
            .push(format!("of no use without {NAME}, and left out: {words}"));
    }
    if sse {
        proposal
            .notes
            .push("it is taken to speak the HTTP+SSE of 2024-11-05".to_owned());
    }
    if !line
        .headers
        .keys()
        .any(|name| name.eq_ignore_ascii_case("authorization"))
    {
        proposal
            .notes
            .push("if it wants a login: colibri-mcp login, with its name".to_owned());
    }
    proposal.tools.1.extend(line.ignored_tools);
    let headers = line.headers;
    proposal.runs = Ok(Runs::Remote(ProposedRemote { url, headers, sse }));
    ask_for_gaps(proposal);
}

fn is_mcp_remote(program: &ProposedProgram) -> bool {
    match program {
        ProposedProgram::Package(package) => {
            let own = package
                .program
                .as_deref()
                .is_none_or(|program| program == NAME);
            package.registry == PackageRegistry::Npm && package.name == NAME && own
        }
        ProposedProgram::Command(command) => {
            command
                .plain()
                .and_then(|command| command.rsplit(['/', '\\']).next())
                == Some(NAME)
        }
        ProposedProgram::Bundled { .. } => false,
    }
}

impl McpRemoteArguments {
    fn read(process: &ProposedProcess) -> anyhow::Result<McpRemoteArguments> {
        let mut line = McpRemoteArguments::default();
        let mut words = process.args.iter();
        while let Some(word) = words.next() {
            let Some(option) = word.plain().filter(|word| word.starts_with('-')) else {
                line.positional(word)?;
                continue;
            };
            let mut value = || {
                let value = words.next();
                value.with_context(|| format!("{} has no value", colibri_text::brief(option, 40)))
            };
            let of_the_entry = OF_THE_ENTRY.iter().find(|(own, _)| *own == option);
            if let Some((_, instead)) = of_the_entry {
                bail!(
                    "{option} is not taken over: colibri-mcp add NAME --url URL, then, in its entry, {instead}"
                );
            }
            if let Some((_, takes_value)) = ITS_OWN.iter().find(|(own, _)| *own == option) {
                if *takes_value {
                    value()?;
                }
                line.left_out.push(option.to_owned());
                continue;
            }
            match option {
                "--header" => line.header(value()?, &process.env)?,
                "--transport" => line.transport(value()?)?,
                "--ignore-tool" => {
                    let pattern = value()?
                        .plain()
                        .context("what --ignore-tool names is not known here")?;
                    line.ignored_tools.push(pattern.to_owned());
                }
                _ => {
                    let name = option.split('=').next().unwrap_or_default();
                    bail!(
                        "the option {} is not known here",
                        colibri_text::brief(name, 60)
                    );
                }
            }
        }
        Ok(line)
    }

    /// The address, and after it the port of a callback.
    fn positional(&mut self, word: &Template) -> anyhow::Result<()> {
        if self.url.is_none() {
            self.url = Some(word.clone());
            return Ok(());
        }
        let port = word.plain().filter(|word| word.parse::<u16>().is_ok());
        let port = port.context("a word after the address is not the port of a callback")?;
        self.left_out.push(format!("the port {port}"));
        Ok(())
    }

    fn transport(&mut self, word: &Template) -> anyhow::Result<()> {
        let known = ["sse-only", "sse-first", "http-only", "http-first"];
        let strategy = word.plain().filter(|strategy| known.contains(strategy));
        let strategy =
            strategy.with_context(|| format!("--transport is none of {}", known.join(", ")))?;
        strategy.clone_into(&mut self.transport);
        Ok(())
    }

    /// `NAME: VALUE`, in which `${VARIABLE}` is one of the program's environment.
    fn header(&mut self, word: &Template, env: &BTreeMap<String, Field>) -> anyhow::Result<()> {
        let mut parts = word.0.iter();
        let first = match parts.next() {
            Some(TemplatePart::Text(text)) => text.split_once(':'),
            _ => None,
        };
        let (name, begin) = first.ok_or_else(|| anyhow!("a --header is not NAME: VALUE"))?;
        let begin = TemplatePart::Text(begin.trim_start().to_owned());
        let mut field = Field {
            text: Template(Vec::new()),
            secret: false,
            optional: false,
        };
        for part in [&begin].into_iter().chain(parts) {
            let pieces = match part {
                TemplatePart::Text(text) => {
                    Template::read(text, "${", '}', |name| Some(gap(name, None))).0
                }
                gap => vec![gap.clone()],
            };
            for piece in pieces {
                match piece {
                    TemplatePart::Gap { key, default } => match env.get(&key) {
                        Some(own) => {
                            field.secret |= own.secret || name_says_secret(&key);
                            field.text.0.extend(own.text.0.iter().cloned());
                            self.used.insert(key);
                        }
                        None => field.text.0.push(TemplatePart::Gap { key, default }),
                    },
                    text => field.text.0.push(text),
                }
            }
        }
        field.text = field.text.joined();
        self.headers.insert(name.trim().to_owned(), field);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::command_line::command;
    use super::super::source::{ImportSource, read};
    use super::*;
    use std::path::Path;

    fn of(line: &str) -> Proposal {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        command("s", &words, BTreeMap::new(), None)
    }

    fn remote(proposal: &Proposal) -> &ProposedRemote {
        match proposal.runs.as_ref().unwrap() {
            Runs::Remote(remote) => remote,
            other => panic!("no address: {other:?}"),
        }
    }

    #[test]
    fn the_address_takes_the_programs_place() {
        for (line, sse) in [
            ("npx -y mcp-remote https://h.example/mcp", false),
            (
                "npx mcp-remote@latest https://h.example/sse 9696 --debug",
                true,
            ),
            (
                "npx mcp-remote https://h.example/sse --transport http-only",
                false,
            ),
            (
                "npx mcp-remote https://h.example/v1 --transport sse-first --host 127.0.0.1",
                true,
            ),
            (
                "bunx mcp-remote https://h.example/v1 --transport http-first --silent",
                false,
            ),
            (
                "/usr/local/bin/mcp-remote https://h.example/v1 --auth-timeout 60 --allow-http",
                false,
            ),
            ("npx -p mcp-remote mcp-remote https://h.example/v1", false),
        ] {
            let proposal = of(line);
            let remote = remote(&proposal);
            assert!(
                remote
                    .url
                    .plain()
                    .unwrap()
                    .starts_with("https://h.example/"),
                "{line}"
            );
            assert_eq!((remote.sse, remote.headers.len()), (sse, 0), "{line}");
            assert!(
                proposal
                    .notes
                    .iter()
                    .any(|note| note.contains("colibri-mcp login")),
                "{line}"
            );
        }
        let proposal = of(
            "npx mcp-remote https://h.example/mcp 9696 --debug --ignore-tool delete* --ignore-tool x",
        );
        assert_eq!(proposal.tools.1, ["delete*", "x"]);
        assert!(
            proposal.notes[1].ends_with("left out: the port 9696, --debug"),
            "{:?}",
            proposal.notes
        );
    }

    #[test]
    fn headers_take_their_variables_from_the_entry_first() {
        let text = r#"{ "mcpServers": { "r": { "command": "npx", "args": ["mcp-remote", "https://h.example/mcp",
            "--header", "Authorization: Bearer ${AUTH_TOKEN}", "--header", "X-Org:${ORG}", "--header", "X-Team: a:b"],
            "env": { "AUTH_TOKEN": "hunter2", "HTTPS_PROXY": "http://p" } } } }"#;
        for source in [ImportSource::ClaudeDesktop, ImportSource::Cursor] {
            let proposal = read(Some(source), Path::new("x"), text)
                .unwrap()
                .1
                .remove(0);
            let headers = &remote(&proposal).headers;
            let authorization = &headers["Authorization"];
            assert_eq!(
                authorization.text.plain(),
                Some("Bearer hunter2"),
                "{source:?}"
            );
            assert!(authorization.secret, "{source:?}");
            assert_eq!(headers["X-Team"].text.plain(), Some("a:b"));
            assert_eq!(proposal.missing(&Default::default()), ["ORG"], "{source:?}");
            assert!(
                proposal
                    .notes
                    .iter()
                    .any(|note| note.ends_with("left out: HTTPS_PROXY"))
            );
            assert!(!proposal.notes.iter().any(|note| note.contains("login")));
        }
    }

    #[test]
    fn what_an_entry_cannot_say_is_named() {
        for (line, why) in [
            ("npx mcp-remote", "no address"),
            ("npx mcp-remote --debug", "no address"),
            (
                "npx mcp-remote https://h/ --resource https://r/",
                "--resource is not taken over",
            ),
            (
                "npx mcp-remote https://h/ --disable-resource-parameter",
                "--disable-resource-parameter is not",
            ),
            (
                "npx mcp-remote https://h/ --static-oauth-client-info {s3cret}",
                "the key oauth",
            ),
            (
                "npx mcp-remote https://h/ --static-oauth-client-metadata @x",
                "the key oauth",
            ),
            ("npx mcp-remote https://h/ --enable-proxy", "the key proxy"),
            (
                "npx mcp-remote https://h/ --new-flag=s3cret",
                "the option --new-flag is not known",
            ),
            (
                "npx mcp-remote https://h/ --header",
                "--header has no value",
            ),
            (
                "npx mcp-remote https://h/ --header s3cret",
                "not NAME: VALUE",
            ),
            (
                "npx mcp-remote https://h/ --transport s3cret",
                "--transport is none of",
            ),
            ("npx mcp-remote https://h/ s3cret", "not the port"),
        ] {
            let said = of(line).runs.unwrap_err();
            assert!(
                said.contains(why) && !said.contains("s3cret"),
                "{line}: {said}"
            );
        }
        // Its other program, and a package that is named so elsewhere, are none of it.
        for line in [
            "npx -p mcp-remote mcp-remote-client https://h/",
            "uvx mcp-remote https://h/",
        ] {
            assert!(matches!(of(line).runs, Ok(Runs::Process(_))), "{line}");
        }
    }
}
