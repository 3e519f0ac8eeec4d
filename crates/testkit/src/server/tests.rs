//! The servers do what the fault tests count on. Each test is skipped where the server is missing.

use std::net::TcpStream;

use super::*;

async fn answers<R: Recipe>(server: &Server<R>) -> bool {
    let port = server.recipe.port();
    spawn_blocking(move || R::SERVICE.probe(port).is_ok()).await.unwrap()
}

#[tokio::test]
async fn a_postgres_keeps_what_was_committed_through_stop_and_kill() {
    let Some(mut server) = Postgres::start().await else { return };
    server.psql("create table t(n int); insert into t values (1)").await;
    server.stop().await;
    assert!(!answers(&server).await);
    server.start_again().await;
    server.psql("insert into t values (2)").await;
    server.kill9();
    assert!(TcpStream::connect(server.addr()).is_err());
    server.start_again().await;
    assert_eq!(server.psql("select string_agg(n::text, ',' order by n) from t").await, "1,2");
}

#[tokio::test]
async fn a_paused_postgres_takes_connections_and_says_nothing() {
    let Some(server) = Postgres::start().await else { return };
    server.pause();
    let mut client = TcpStream::connect(server.addr()).unwrap();
    client.set_nonblocking(true).unwrap();
    io::Write::write_all(&mut client, b"\0\0\0\x08\x04\xd2\x16\x2f").unwrap();
    let stopped = |stat: &String| stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T');
    let state = |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    for pid in server.processes.all() {
        crate::eventually(PATIENCE, "all are stopped", async || stopped(&state(pid))).await;
    }
    let nothing = io::Read::read(&mut client, &mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    server.resume();
    crate::eventually(PATIENCE, "it answers", async || io::Read::read(&mut client, &mut [0]).ok()).await;
    assert!(answers(&server).await);
}

#[tokio::test]
async fn nothing_is_left_of_a_server_whose_test_panics() {
    let Some(server) = Postgres::start().await else { return };
    let (dir, addr, pids) = (server.dir.path().to_owned(), server.addr(), server.processes.all());
    assert!(pids.len() > 3, "a server is several processes: {pids:?}");
    let panicked = tokio::spawn(async move {
        let _owned = server;
        panic!("as a test would");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert!(TcpStream::connect(addr).is_err() && !dir.exists());
    assert!(pids.iter().all(|pid| !process::is_alive(*pid)));
}

#[tokio::test]
async fn nothing_is_left_of_a_server_whose_process_is_killed() {
    let Some(mut server) = Postgres::start().await else { return };
    let (addr, dir) = (server.addr(), server.dir.path().to_owned());
    // the end of the pipe is what the death of our process looks like to the keeper
    drop(server._keeper.let_go());
    crate::eventually(PATIENCE, "the keeper ends it", async || TcpStream::connect(addr).is_err()).await;
    crate::eventually(PATIENCE, "the keeper tidies up", async || !dir.exists()).await;
}

#[tokio::test]
async fn a_rabbitmq_stops_starts_again_and_can_be_killed_whole() {
    let Some(mut server) = RabbitMq::start().await else { return };
    let alarm = server.ctl(&["set_vm_memory_high_watermark", "0"]).await;
    assert!(alarm.status.success(), "{}", String::from_utf8_lossy(&alarm.stderr));
    server.stop().await;
    assert!(!answers(&server).await);
    server.start_again().await;
    let pids = server.processes.all();
    server.kill9();
    assert!(pids.iter().all(|pid| !process::is_alive(*pid)));
    assert!(TcpStream::connect(server.addr()).is_err());
}

#[tokio::test]
async fn a_server_left_running_is_ended_by_its_folder() {
    if Cluster::lacking().is_some() {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    fs::set_permissions(parent.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let dir: PathBuf = parent.path().join("postgres");
    let port = free_port().unwrap();
    leave_running(Service::Postgres, &dir, port).await.unwrap();
    Service::Postgres.probe(port).unwrap();
    assert!(end(&dir).unwrap() && !dir.exists());
    Service::Postgres.probe(port).unwrap_err();
    assert!(!end(&dir).unwrap());
}
