"""What the driver finds out of the replicas, some of which are away, behind, removed, or not of this log."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from replicated_logs import change_replicas, replicated

from certificates import Authority
from serving import serving
from totempole.errors import ConfigurationError, LogError, SessionError, StorageError, TlsError
from totempole.session.log_frames import (
    FRAME_BYTES_MAX,
    FrameBuffer,
    Measure,
    Request,
    Welcome,
    decode_request,
    encode,
)
from totempole.spark_table.access import Access
from totempole.spark_table.survey import ReplicaSurvey, View, look_as_far_as, survey_of
from written_logs import LOG, WrittenLog

PATIENCE_S = 2.0


def access_of(replicas: str, **options: str) -> Access:
    return Access.of({"replicas": replicas, "timeout": str(PATIENCE_S)} | options)


def look(replicas: str, **options: str) -> View:
    with closing(survey_of(access_of(replicas, **options))) as survey:
        return survey.look()


def test_the_order_ends_where_the_replica_ends_that_has_most(tmp_path: Path) -> None:
    with replicated(tmp_path, 3) as replicas:
        replicas.append([b"x"] * 10)
        replicas.append([b"y"] * 5, without=1)
        view = look(replicas.option)
        assert (view.log, view.first, view.position) == (LOG, 0, 15)
        assert view.replicas == tuple(str(tmp_path / f"node{number}-log.sock") for number in (2, 3))
        assert view.is_whole


def test_it_begins_where_the_replica_begins_that_has_kept_most(tmp_path: Path) -> None:
    with replicated(tmp_path, 2) as replicas:
        for _ in range(3):
            replicas.append([b"x"] * 10)
            replicas.begin_segment()
        replicas.logs[0].trim(3)
        assert look(replicas.option).first == 0
        assert look(str(replicas.socket(1))).first == 20


def test_one_that_is_away_does_not_matter(tmp_path: Path) -> None:
    with replicated(tmp_path, 3, served=(2,)) as replicas:
        replicas.append([b"x"] * 10)
        view = look(replicas.option)
        assert (view.position, view.is_whole) == (10, False)


@contextmanager
def silent_server(path: Path) -> Iterator[None]:
    """Takes connections, and says nothing: a process that is stopped, or a host that has just gone."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield


def test_one_that_hangs_is_waited_for_once_and_shortly(tmp_path: Path) -> None:
    with replicated(tmp_path, 2, served=(1,)) as replicas, silent_server(tmp_path / "node2-log.sock"):
        replicas.append([b"x"] * 10)
        with closing(ReplicaSurvey(access_of(replicas.option, timeout="30"))) as survey:
            assert survey.look().position == 10
            replicas.append([b"x"] * 5)
            waits = {name[-14:]: link.is_awaited for name, link in survey._links.items()}
            assert waits == {"node1-log.sock": True, "node2-log.sock": False}
            assert survey.look().position == 15


def test_connections_are_kept(tmp_path: Path) -> None:
    with replicated(tmp_path) as replicas:
        with closing(survey_of(access_of(replicas.option))) as survey:
            for number in range(1, 20):
                replicas.append([b"x"])
                assert survey.look().position == number
                assert survey.measure(Measure(0, number, rows_max=5)).rows == min(number, 5)
        told = replicas.services[1].told()
        assert told.count("log service socket") == 1


def test_a_service_that_was_started_again_is_asked_again(tmp_path: Path) -> None:
    with replicated(tmp_path) as replicas, closing(survey_of(access_of(replicas.option))) as survey:
        replicas.append([b"x"])
        assert survey.look().position == 1
        service = replicas.services[1]
        service.kill()
        timer = threading.Timer(0.5, service.start)
        timer.start()
        replicas.append([b"x"])
        assert survey.look().position == 2
        timer.join()


def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(SessionError) as found:
        look(f"{tmp_path}/node1.sock,{tmp_path}/node2.sock")
    for words in ("option replicas = ", "none could be read from for 2 s (option timeout)", "node2-log.sock"):
        assert words in str(found.value)


def test_a_log_that_is_not_founded(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    log = WrittenLog(tmp_path / "log", log=0)
    with (
        serving(log.directory, tmp_path / "node1-log.sock"),
        pytest.raises(SessionError, match="not founded yet"),
    ):
        look(str(tmp_path / "node1.sock"))


# Another log, another replica set


def test_replicas_of_two_clusters_are_refused(tmp_path: Path) -> None:
    with (
        replicated(tmp_path / "a") as mine,
        replicated(tmp_path / "b", log=LOG + 1) as other,
        pytest.raises(ConfigurationError, match=r"a11ce.*a11cf.*different clusters"),
    ):
        look(f"{mine.option},{other.option}")


def test_a_survey_stays_with_its_log(tmp_path: Path) -> None:
    """A replica that was rescued meanwhile is passed over; alone it is an error."""
    with replicated(tmp_path / "a") as mine, replicated(tmp_path / "b", log=LOG + 1) as other:
        survey = ReplicaSurvey(access_of(f"{mine.option},{other.option}"))
        survey._log = LOG
        assert survey.look().log == LOG
        mine.services[1].kill()
        with pytest.raises(SessionError, match="it is another cluster's, or was rescued since"):
            survey.look()
        survey.close()


def test_a_replica_that_was_removed_is_not_asked_for_the_end(tmp_path: Path) -> None:
    """It serves what it had, for as long as it runs."""
    with replicated(tmp_path, 3) as replicas:
        replicas.append([b"x"] * 10)
        change_replicas(replicas, 3, 0)
        replicas.append([b"x"] * 5, without=3)
        view = look(replicas.option)
        assert (view.position, view.is_whole) == (15, True)
        assert not [name for name in view.replicas if "node3" in name]
        with pytest.raises(ConfigurationError, match=r"processors 3\) are not in .* it is 1, 2. Name some"):
            look(str(replicas.socket(3)))


def test_a_removed_replica_that_does_not_know_it_is_passed_over(tmp_path: Path) -> None:
    with replicated(tmp_path, 3) as replicas:
        replicas.append([b"x"] * 10)
        change_replicas(replicas, 3, 0, without=3)
        assert look(replicas.option).position == 10
        replicas.append([b"x"] * 5, without=3)
        assert look(f"{replicas.socket(3)},{replicas.socket(1)}").position == 15


# Other versions, other certificates


@contextmanager
def old_service(path: Path, welcome: Welcome) -> Iterator[None]:
    """Says hello as a service of an earlier version does."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    buffer: FrameBuffer[Request] = FrameBuffer(decode_request, FRAME_BYTES_MAX)
                    while (count := connection.recv_into(buffer.room())) and not buffer.filled(count):
                        pass
                    connection.sendall(encode(welcome))
                    connection.recv(100)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("welcome", "words"),
    [
        (Welcome(1, 7, 4, LOG, 0, 5, True), "processor 4 is of an older version: it does not tell sizes"),
        (Welcome(99, 7, 4, LOG, 0, 5, True, True), "speaks version 99, this is 1"),
    ],
)
def test_a_service_of_another_version_is_refused_at_once(
    tmp_path: Path, welcome: Welcome, words: str
) -> None:
    with (
        old_service(tmp_path / "node1-log.sock", welcome),
        pytest.raises(LogError, match=words),
    ):
        look(str(tmp_path / "node1.sock"), timeout="60")


def test_a_service_of_an_older_version_is_passed_over(tmp_path: Path) -> None:
    with (
        replicated(tmp_path, 2, served=(2,)) as replicas,
        old_service(tmp_path / "node1-log.sock", Welcome(1, 7, 1, LOG, 0, 5, True)),
    ):
        replicas.append([b"x"] * 3)
        assert look(replicas.option).position == 3


def test_certificates_that_are_refused_are_told_at_once(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    certificate, key = authority.issue("node")
    log = WrittenLog(tmp_path / "log")
    log.append([b"x"] * 3)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    address = f"127.0.0.1:{port}"
    files = {"tls_certificate": certificate, "tls_key": key, "tls_authorities": authority.path}

    def options(mine: tuple[Path, Path], trusted: Authority) -> dict[str, str]:
        return {
            "tlsCertificate": str(mine[0]),
            "tlsKey": str(mine[1]),
            "tlsAuthorities": str(trusted.path),
            "timeout": "60",
        }

    with serving(
        log.directory,
        tmp_path / "node1-log.sock",
        listen=address,
        **{name: str(path) for name, path in files.items()},
    ):
        assert look(address, **options(authority.issue("reader"), authority)).position == 3
        good = options(authority.issue("reader"), authority) | {"tlsServerName": "127.0.0.1"}
        assert look(f"localhost:{port}", **good).position == 3
        for mine, trusted in ((stranger.issue("spy"), authority), (authority.issue("reader"), stranger)):
            with pytest.raises(TlsError, match="check the certificates of both sides"):
                look(address, **options(mine, trusted))


# As far as a position


def test_a_position_that_was_green_is_waited_for(tmp_path: Path) -> None:
    with replicated(tmp_path, 2) as replicas, closing(survey_of(access_of(replicas.option))) as survey:
        replicas.append([b"x"] * 5)
        timer = threading.Timer(0.4, lambda: replicas.append([b"x"] * 5))
        timer.start()
        view = look_as_far_as(survey, 9, PATIENCE_S)
        timer.join()
        assert view is not None
        assert view.position == 10
        assert look_as_far_as(survey, 11, 0.5) is None


# Files


def test_a_directory_is_a_replica(tmp_path: Path) -> None:
    with replicated(tmp_path, served=()) as replicas:
        replicas.append([b"x"] * 5)
        replicas.begin_segment()
        replicas.append([b"x"] * 5)
        with closing(survey_of(Access(directory=str(tmp_path / "log1")))) as survey:
            view = survey.look()
            assert (view.log, view.first, view.position) == (LOG, 0, 10)
            assert view.sizes.boundaries == [0, 5, 10]
            replicas.append([b"y"] * 5)
            assert survey.look().position == 15
            assert survey.measure(Measure(3, 15, rows_max=4)).position == 7
            for _ in range(3):
                replicas.begin_segment()
                replicas.append([b"y"] * 5)
            replicas.trim(5)
            view = survey.look()
            assert (view.first, view.position) == (25, 30)


def test_a_directory_without_a_log(tmp_path: Path) -> None:
    for directory, words in ((tmp_path, "has no log in it"), (tmp_path / "none", "cannot be read as a log")):
        with (
            closing(survey_of(Access(directory=str(directory)))) as survey,
            pytest.raises(StorageError, match=words),
        ):
            survey.look()
