//! Command lines that fetch what they run: `npx`, `uvx` and their like. What they would fetch
//! becomes a [`Package`]; they themselves never stand in a registry.

use anyhow::{Context as _, anyhow, bail};

use super::proposal::{Package, PackageRegistry};
use super::template::Template;

/// The package that a command line fetches, and the arguments of the program in it.
type RunnerPackage = Option<(Package, Vec<Template>)>;

/// The package that a command line runs; `None`: it runs a program of this machine.
///
/// # Errors
/// Why it can be neither.
pub(super) fn package(command: &Template, args: &[Template]) -> anyhow::Result<RunnerPackage> {
    let Some(command) = command.plain() else {
        return Ok(None);
    };
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name
        .strip_suffix(".cmd")
        .or_else(|| name.strip_suffix(".exe"))
        .unwrap_or(name);
    let word = |at: usize| args.get(at).and_then(Template::plain);
    match (name, word(0), word(1)) {
        ("npx" | "bunx" | "pnpx", ..) => npm(name, args),
        ("npm", Some("exec" | "x"), _) => npm("npm exec", &args[1..]),
        ("pnpm" | "yarn", Some("dlx"), _) => npm("dlx", &args[1..]),
        ("bun", Some("x"), _) => npm("bun x", &args[1..]),
        ("uvx", ..) => uvx(args),
        ("uv", Some("tool"), Some("run")) => uvx(&args[2..]),
        ("uv", ..) => Err(anyhow!(
            "uv would fetch what it runs: install it first, and add the interpreter of its environment with the script"
        )),
        ("pipx", Some("run"), _) => pipx(&args[1..]),
        ("pipx" | "dnx", ..) => Err(anyhow!(
            "{name} would fetch what it runs, in a way that is not known here"
        )),
        ("cmd", Some("/c" | "/C"), _) => match args.get(1) {
            Some(command) => package(command, &args[2..]),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// `npx [-y] [-p PACKAGE] [--] PACKAGE[@VERSION] ARGS`, npm-exec(1).
fn npm(runner: &str, args: &[Template]) -> anyhow::Result<RunnerPackage> {
    let mut packages: Vec<String> = Vec::new();
    let mut words = args.iter().enumerate();
    while let Some((at, word)) = words.next() {
        let word = plain(word, runner)?;
        let given = match word {
            "-y" | "--yes" | "-q" | "--quiet" | "--silent" | "--bun" | "--prefer-online" | "--" => {
                continue;
            }
            "-p" | "--package" => match words.next() {
                Some((_, package)) => plain(package, runner)?.to_owned(),
                None => bail!("{word} of {runner} names no package"),
            },
            _ => match word
                .strip_prefix("--package=")
                .or_else(|| word.strip_prefix("-p="))
            {
                Some(package) => package.to_owned(),
                None if word.starts_with('-') => {
                    return Err(not_known(word, runner));
                }
                None => return npm_named(word, &packages, args[at + 1..].to_vec()),
            },
        };
        packages.push(given);
    }
    Err(anyhow!("{runner} is told no package"))
}

fn npm_named(
    word: &str,
    packages: &[String],
    args: Vec<Template>,
) -> anyhow::Result<RunnerPackage> {
    let (first, program) = match packages.first() {
        Some(package) => (package.as_str(), Some(word.to_owned())),
        None => (word, None),
    };
    // The first @ is a scope's.
    let at = first
        .char_indices()
        .skip(1)
        .find(|(_, c)| *c == '@')
        .map(|(at, _)| at);
    let (name, version) = at.map_or((first, None), |at| (&first[..at], Some(&first[at + 1..])));
    for package in [first]
        .into_iter()
        .chain(packages.iter().skip(1).map(String::as_str))
    {
        let at = package.char_indices().skip(1).find(|(_, c)| *c == '@');
        let (bare, version) = at.map_or((package, ""), |(at, _)| {
            (&package[..at], &package[at + 1..])
        });
        if !is_npm_name(bare) || !is_version(version) {
            return Err(not_published("npm", package));
        }
    }
    check_program(name)?;
    check_program(program.as_deref().unwrap_or_default())?;
    let package = Package {
        registry: PackageRegistry::Npm,
        name: name.to_owned(),
        version: version
            .filter(|version| !version.is_empty())
            .map(str::to_owned),
        program,
        with: packages.iter().skip(1).cloned().collect(),
    };
    Ok(Some((package, args)))
}

/// `uvx [--from PACKAGE] [--with PACKAGE] [--python VERSION] NAME[@VERSION] ARGS`.
fn uvx(args: &[Template]) -> anyhow::Result<RunnerPackage> {
    let (mut from, mut with) = (None, Vec::new());
    let mut words = args.iter().enumerate();
    while let Some((at, word)) = words.next() {
        let word = plain(word, "uvx")?;
        let (option, joined) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value.to_owned())),
            _ => (word, None),
        };
        let mut value = || match &joined {
            Some(value) => Ok(value.clone()),
            None => match words.next() {
                Some((_, value)) => plain(value, "uvx").map(str::to_owned),
                None => Err(anyhow!("{option} of uvx has no value")),
            },
        };
        match option {
            "--from" => from = Some(value()?),
            "--with" | "-w" => {
                with.extend(value()?.split(',').map(|package| package.trim().to_owned()))
            }
            // The interpreter is this machine's.
            "--python" | "-p" => drop(value()?),
            "-q" | "--quiet" | "--refresh" | "--isolated" | "--no-cache" | "-n" | "--"
            | "--no-progress" => {}
            _ if option.starts_with('-') => return Err(not_known(option, "uvx")),
            _ => return pypi_named(from.as_deref(), word, with, args[at + 1..].to_vec()),
        }
    }
    Err(anyhow!("uvx is told no package"))
}

/// `pipx run [--spec PACKAGE] NAME ARGS`.
fn pipx(args: &[Template]) -> anyhow::Result<RunnerPackage> {
    let mut spec = None;
    let mut words = args.iter().enumerate();
    while let Some((at, word)) = words.next() {
        match plain(word, "pipx")? {
            "--spec" => match words.next() {
                Some((_, value)) => spec = Some(plain(value, "pipx")?.to_owned()),
                None => bail!("--spec of pipx has no value"),
            },
            "-q" | "--quiet" | "--no-cache" | "--" => {}
            word if word.starts_with('-') => return Err(not_known(word, "pipx")),
            word => return pypi_named(spec.as_deref(), word, Vec::new(), args[at + 1..].to_vec()),
        }
    }
    Err(anyhow!("pipx is told no package"))
}

fn pypi_named(
    from: Option<&str>,
    word: &str,
    with: Vec<String>,
    args: Vec<Template>,
) -> anyhow::Result<RunnerPackage> {
    let (name, version) = requirement(from.unwrap_or(word))?;
    for package in &with {
        requirement(package)?;
    }
    check_program(name.split('[').next().unwrap_or_default())?;
    check_program(from.map_or("", |_| word))?;
    let package = Package {
        registry: PackageRegistry::Pypi,
        name,
        version,
        program: from.map(|_| word.to_owned()),
        with,
    };
    Ok(Some((package, args)))
}

/// Name and version of `NAME[EXTRA]`, `NAME@VERSION`, `NAME==VERSION`, `NAME>=VERSION,<NEXT`.
pub(super) fn requirement(text: &str) -> anyhow::Result<(String, Option<String>)> {
    let end = text
        .find(|c: char| "@=<>~!; ".contains(c))
        .unwrap_or(text.len());
    let (name, rest) = (&text[..end], text[end..].trim());
    let bare = name.split('[').next().unwrap_or_default();
    let extras = name[bare.len()..]
        .strip_prefix('[')
        .map(|extras| extras.strip_suffix(']'));
    let extras_legal = extras
        .is_none_or(|extras| extras.is_some_and(|extras| extras.split(',').all(is_pypi_name)));
    let version = match rest.strip_prefix("==").or_else(|| rest.strip_prefix('@')) {
        Some("latest") => "",
        Some(version) => version,
        None => rest,
    };
    if !is_pypi_name(bare) || !extras_legal || !is_version(version) {
        return Err(not_published("PyPI", text));
    }
    Ok((
        name.to_owned(),
        Some(version.trim().to_owned()).filter(|version| !version.is_empty()),
    ))
}

/// Refuses a package or a program that fetches, or runs, whatever its arguments say: then another
/// package than the one that is named would run.
fn check_program(name: &str) -> anyhow::Result<()> {
    const NAMES: [&str; 13] = [
        "bun", "bunx", "corepack", "npm", "npx", "pip", "pipx", "pnpm", "pnpx", "python", "uv",
        "uvx", "yarn",
    ];
    // As pip3 and python3.12.
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match NAMES.contains(&bare) {
        true => Err(anyhow!(
            "{} runs what its arguments say, and not the package that is named",
            colibri_text::brief(name, 60)
        )),
        false => Ok(()),
    }
}

/// The option by its name: what it is told may be a secret.
fn not_known(option: &str, runner: &str) -> anyhow::Error {
    let name = option.split('=').next().unwrap_or_default();
    anyhow!(
        "the option {} of {runner} is not known here",
        colibri_text::brief(name, 60)
    )
}

fn not_published(registry: &str, what: &str) -> anyhow::Error {
    let what = colibri_text::brief(what, 60);
    anyhow!(
        "{what} is not the name of a package of {registry}: only published packages can be installed by version and hash"
    )
}

fn plain<'t>(word: &'t Template, runner: &str) -> anyhow::Result<&'t str> {
    word.plain()
        .with_context(|| format!("what {runner} would fetch is known only where the file is used"))
}

/// A version or range, or none: nothing that a package manager takes for an address, which it would
/// fetch and build whatever it was told of packages.
fn is_version(version: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || ".+-_^~<>=!*, ".contains(c);
    version.len() <= 64 && version.chars().all(legal) && !version.starts_with('-')
}

/// True if npm publishes packages of such names (package.json(5), `name`).
pub(super) fn is_npm_name(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '_', '-'])
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._~-".contains(c))
    };
    name.len() <= 214
        && match name.strip_prefix('@') {
            Some(scoped) => scoped
                .split_once('/')
                .is_some_and(|(scope, name)| part(scope) && part(name)),
            None => part(name),
        }
}

/// True if PyPI publishes packages of such names (PEP 508).
pub(super) fn is_pypi_name(name: &str) -> bool {
    let name = name.trim();
    (1..=100).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> anyhow::Result<RunnerPackage> {
        let mut words = line.split(' ').map(Template::from);
        let command = words.next().unwrap();
        package(&command, &words.collect::<Vec<_>>())
    }

    fn fetched(line: &str) -> (Package, Vec<String>) {
        let (package, args) = run(line).unwrap().unwrap();
        (
            package,
            args.iter()
                .map(|arg| arg.plain().unwrap().to_owned())
                .collect(),
        )
    }

    #[test]
    fn what_runners_of_npm_would_fetch() {
        let (package, args) = fetched("npx -y @scope/pkg@1.2.3 --dir /a");
        assert_eq!(
            (package.registry, package.name.as_str()),
            (PackageRegistry::Npm, "@scope/pkg")
        );
        assert_eq!(
            (package.version.as_deref(), package.program),
            (Some("1.2.3"), None)
        );
        assert_eq!(args, ["--dir", "/a"]);
        let (package, args) = fetched("/usr/bin/npm exec --package=pkg -- prog -x");
        assert_eq!(
            (package.name.as_str(), package.program.as_deref()),
            ("pkg", Some("prog"))
        );
        assert_eq!(args, ["-x"]);
        assert_eq!(
            fetched("cmd /c npx pkg@latest").0.version.as_deref(),
            Some("latest")
        );
        assert_eq!(fetched("bunx --bun pkg").0.name, "pkg");
    }

    #[test]
    fn an_option_that_is_not_known_is_named_without_what_it_is_told() {
        for (line, name) in [
            (
                "npx --//r.example/:_authToken=s3cret pkg",
                "--//r.example/:_authToken of npx",
            ),
            ("uvx --index=https://u:s3cret@h/ pkg", "--index of uvx"),
            ("pipx run --pip-args=s3cret pkg", "--pip-args of pipx"),
            ("npx -x\0\n pkg", "-x\\u{0}\\n of npx"),
        ] {
            let error = run(line).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn what_runners_of_pypi_would_fetch() {
        let (package, args) = fetched("uvx --with httpx,attrs mcp-server-time@2026.1 --local");
        assert_eq!(
            (package.name.as_str(), package.version.as_deref()),
            ("mcp-server-time", Some("2026.1"))
        );
        assert_eq!(
            (package.with, args),
            (
                vec!["httpx".to_owned(), "attrs".to_owned()],
                vec!["--local".to_owned()]
            )
        );
        let (package, _) = fetched("uv tool run --from=pkg[cli]==1.0 prog");
        assert_eq!(
            (package.name.as_str(), package.version.as_deref()),
            ("pkg[cli]", Some("1.0"))
        );
        assert_eq!(package.program.as_deref(), Some("prog"));
        assert_eq!(
            fetched("pipx run --spec pkg>=1,<2 prog")
                .0
                .version
                .as_deref(),
            Some(">=1,<2")
        );
        assert_eq!(fetched("uvx pkg@latest").0.version, None);
    }

    #[test]
    fn programs_of_the_machine_stay() {
        for line in [
            "node /x.js",
            "/usr/local/bin/server stdio",
            "python3 -m server",
            "npm start",
            "docker run -i image",
            "podman run x",
        ] {
            assert_eq!(run(line).unwrap(), None, "{line}");
        }
    }

    #[test]
    fn what_is_not_published_or_not_understood_is_refused() {
        for line in [
            "npx",
            "npx -y",
            "npx -c pkg",
            "npx github:owner/repo",
            "npx ./dir",
            "npx https://host/x.tgz",
            "npx pkg@git+https://host/x",
            "uvx --from git+https://host/x prog",
            "uvx ./dir",
            "uvx --index-url http://x pkg",
            "uv run server.py",
            "pipx run",
            "dnx pkg",
            "npx -p pkg@file:/x prog",
            "uvx --with git+https://host/x pkg",
            "npx pkg@-x",
            "uvx pkg;python_version<'3'",
            "uvx --with mcp@https://host/x.tar.gz pkg",
            "uvx --with mcp@file:///x.tar.gz pkg",
            "uvx --with=ok,mcp@git+https://host/x pkg",
            "npx -p pkg -p other@git+https://host/x prog",
            "npx -p pkg -p other@file:/x prog",
        ] {
            assert!(run(line).is_err(), "{line}");
        }
    }
}
