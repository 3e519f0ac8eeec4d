//! Running a server's programs, as its own user where we are root.

use std::{
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program, run as the given user if we are root, else as who we are.
pub(super) fn program_as(user: &str, program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).args(["--clear-groups", "--"]).arg(program);
    command
}

/// Says what is lacking to run programs as this user.
pub(super) fn lacking_user(user: &str) -> Option<String> {
    if !Path::new("/proc/self/stat").exists() {
        return Some("servers of a test's own need Linux".to_owned());
    }
    if !is_root() {
        return None;
    }
    if find("setpriv").is_none() {
        return Some("we are root, and `setpriv` (package util-linux) is not installed".to_owned());
    }
    let id = Command::new("id").arg("-u").arg(user).output();
    let known = id.is_ok_and(|output| output.status.success());
    (!known).then(|| format!("we are root, and there is no user {user} to run it as"))
}

/// Makes a folder and all in it the user's, if we are root.
pub(super) fn give_to(user: &str, dir: &Path) -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    output(Command::new("chown").arg("-R").arg(format!("{user}:")).arg(dir)).map(drop)
}

/// Runs a program to its end.
///
/// # Errors
/// When it can't be run or fails; tells what it said.
pub(super) fn output(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{}: {}: {}", command.get_program().display(), output.status, said.trim())))
}

/// Makes a command one that runs on by itself and writes to the log in this folder.
pub(super) fn in_background<'a>(command: &'a mut Command, dir: &Path) -> io::Result<&'a mut Command> {
    use std::os::unix::process::CommandExt as _;
    let log = File::options().create(true).append(true).open(dir.join("log"))?;
    // a group of its own: Ctrl-C at the terminal is for the tests
    Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0))
}

/// The end of the log in this folder.
pub(super) fn last_words(dir: &Path) -> String {
    let log = fs::read(dir.join("log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.lines().collect();
    format!("The end of its log:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
}

/// Where a program is: the first folder of `PATH` that has it.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
