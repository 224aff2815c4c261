//! Command lines that start a container: `docker run` and its like.

use std::collections::BTreeMap;

use anyhow::bail;

use super::proposal::Field;
use super::secret::{looks_secret, name_says_secret};
use super::template::{Template, TemplatePart};

/// The options of `docker run` that take no value.
const FLAGS: [&str; 14] = [
    "--detach",
    "--disable-content-trust",
    "--help",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rm",
    "--sig-proxy",
    "--tty",
];
/// The letters of those.
const LETTERS: &str = "dhiPqt";

/// Arguments of a command line, and its environment.
type Arguments = (Vec<Template>, BTreeMap<String, Field>);

/// The program that starts a container, if this command is one.
pub fn container_runner(command: &str) -> Option<&'static str> {
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.strip_suffix(".exe").unwrap_or(name);
    ["docker", "podman", "nerdctl"]
        .into_iter()
        .find(|runner| *runner == name)
}

/// Refuses what starts a container where there are none.
///
/// # Errors
/// The system is FreeBSD.
pub(super) fn check_container(runner: &str, is_freebsd: bool) -> anyhow::Result<()> {
    if is_freebsd {
        bail!(
            "{runner} would run it in a container, which FreeBSD has not: add the server itself, as a package of npm or \
             PyPI, a program or an address, and give it a jail"
        );
    }
    Ok(())
}

/// The same command line, with secrets in the environment of the runner, which passes them on by
/// name (`-e NAME`), and no longer in arguments that every user sees.
pub(super) fn hide_secrets(args: Vec<Template>, mut env: BTreeMap<String, Field>) -> Arguments {
    let mut hidden = Vec::new();
    let mut is_value_of = None;
    let mut is_over = args.first().and_then(Template::plain) != Some("run");
    for (at, word) in args.into_iter().enumerate() {
        let option = is_value_of.take();
        if is_over || at == 0 {
            hidden.push(word);
            continue;
        }
        if let Some(option) = option {
            let is_env = matches!(option, EnvironmentOption::Own);
            hidden.push(if is_env {
                moved(word, "", &mut env)
            } else {
                word
            });
            continue;
        }
        match word.beginning() {
            "-e" | "--env" => is_value_of = Some(EnvironmentOption::Own),
            text if text.starts_with("--env=") => {
                hidden.push(moved(word, "--env=", &mut env));
                continue;
            }
            text if !text.starts_with('-') => is_over = true,
            text if FLAGS.contains(&text) || text.contains('=') => {}
            text if !text.starts_with("--")
                && text[1..].chars().all(|letter| LETTERS.contains(letter)) => {}
            _ => is_value_of = Some(EnvironmentOption::Other),
        }
        hidden.push(word);
    }
    (hidden, env)
}

/// The option whose value comes next.
enum EnvironmentOption {
    Own,
    Other,
}

/// `NAME` for `NAME=VALUE`, whose value goes to the environment if it is a secret.
fn moved(word: Template, before: &str, env: &mut BTreeMap<String, Field>) -> Template {
    let text = word.beginning().strip_prefix(before).unwrap_or_default();
    let Some((name, begin)) = text.split_once('=') else {
        return word;
    };
    let rest = word.0.get(1..).unwrap_or_default();
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_secret = name_says_secret(name) || looks_secret(begin) && rest.is_empty();
    if !is_name || !is_secret || (begin.is_empty() && rest.is_empty()) {
        return word;
    }
    let begin = Some(begin).filter(|begin| !begin.is_empty());
    let begin = begin.map(|begin| TemplatePart::Text(begin.to_owned()));
    let field = Field {
        text: Template(begin.into_iter().chain(rest.iter().cloned()).collect()),
        secret: true,
        optional: false,
    };
    let name = name.to_owned();
    let option = Template::from(format!("{before}{name}").as_str());
    env.insert(name, field);
    option
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(line: &str) -> (String, Vec<String>) {
        let words = line.split(' ').map(|word| {
            Template::read(word, "${", '}', |key| {
                let (key, default) = (key.to_owned(), None);
                Some(TemplatePart::Gap { key, default })
            })
        });
        let (args, env) = hide_secrets(words.collect(), BTreeMap::new());
        let args: Vec<&str> = args
            .iter()
            .map(|word| word.plain().unwrap_or("GAP"))
            .collect();
        let value = |field: &Field| field.text.plain().unwrap_or("GAP").to_owned();
        (
            args.join(" "),
            env.iter()
                .map(|(name, field)| format!("{name}={}", value(field)))
                .collect(),
        )
    }

    #[test]
    fn secrets_are_passed_by_name() {
        for (line, args, env) in [
            (
                "run -i --rm -e A_TOKEN=x image",
                "run -i --rm -e A_TOKEN image",
                vec!["A_TOKEN=x"],
            ),
            (
                "run -it --env=A_KEY=x --env LOG=info image",
                "run -it --env=A_KEY --env LOG=info image",
                vec!["A_KEY=x"],
            ),
            (
                "run -e A_KEY=${K} image",
                "run -e A_KEY image",
                vec!["A_KEY=GAP"],
            ),
            (
                "run -e X=ghp_0123456789abcdef image",
                "run -e X image",
                vec!["X=ghp_0123456789abcdef"],
            ),
            (
                "run -v -e -e A_KEY=x image",
                "run -v -e -e A_KEY image",
                vec!["A_KEY=x"],
            ),
            // Not the runner's own: of the server, of another option, of another command.
            ("run image -e A_KEY=x", "run image -e A_KEY=x", vec![]),
            (
                "run --name -e A_KEY=x image",
                "run --name -e A_KEY=x image",
                vec![],
            ),
            ("exec -e A_KEY=x c", "exec -e A_KEY=x c", vec![]),
            (
                "run -e A_KEY= -e A_KEY -e =x -e",
                "run -e A_KEY= -e A_KEY -e =x -e",
                vec![],
            ),
        ] {
            assert_eq!(
                hidden(line),
                (
                    args.to_owned(),
                    env.iter().map(|one| (*one).to_owned()).collect()
                ),
                "{line}"
            );
        }
    }

    #[test]
    fn a_container_is_known_by_who_starts_it() {
        assert_eq!(container_runner("/usr/bin/docker"), Some("docker"));
        assert_eq!(container_runner("podman"), Some("podman"));
        assert_eq!(container_runner("/usr/bin/docker-mcp"), None);
        assert!(check_container("docker", false).is_ok());
        assert!(
            check_container("docker", true)
                .unwrap_err()
                .to_string()
                .contains("jail")
        );
    }
}
