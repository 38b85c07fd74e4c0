"""Sources and consumers of Python in farms of real processes."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time

import numpy
import pyarrow
import pytest

import sheaf


def payload(flp: int, tf: int) -> numpy.ndarray:
    return numpy.arange(tf, tf + 1000 + flp, dtype="uint32")


def test_arrays_go_through_a_farm_and_come_out_where_they_lie():
    tfs = 50
    with sheaf.farm(flps=2, epns=1, config={"run": {"timeframes": tfs}}) as farm:
        with farm.source(0) as first, farm.source(1) as second:
            for tf in range(tfs):
                assert first.send(tf, payload(0, tf))
                assert second.send(tf, [b"head", payload(1, tf)])
            seen = []
            for tf in farm.consume():
                assert tf.faults() == [] and tf.missing == [] and len(tf) == 2
                array = tf.part(0).array("uint32")
                assert not array.flags.owndata and not array.flags.writeable
                assert numpy.array_equal(array, payload(0, tf.id))
                assert bytes(tf.part(1)) == b"head" + payload(1, tf.id).tobytes()
                assert tf.part(2) is None
                seen.append(tf.id)
        farm.wait()
        assert sorted(seen) == list(range(tfs))
        assert farm.verify()["complete"] == tfs


def test_leaving_the_sources_delivers_what_was_sent():
    with sheaf.farm(flps=1, epns=1) as farm:
        consumer = threading.Thread(target=lambda: seen.extend(tf.id for tf in farm.consume()))
        seen: list[int] = []
        consumer.start()
        with farm.source() as source:
            for tf in range(7, 17):
                source.send(tf, b"x" * 100)
        farm.stop()
        consumer.join()
        assert seen == list(range(7, 17))


def test_heartbeats_pace_a_source():
    config = {
        "run": {"timeframes": 20},
        "icn.scheduler": {"mode": "paced", "paced_rate_hz": 200.0},
    }
    with sheaf.farm(flps=2, epns=1, config=config) as farm:
        def read_out(source: sheaf.Source) -> None:
            for tf in source.heartbeats():
                source.send(tf, tf.to_bytes(8))
            source.close()

        sources = [farm.source(0), farm.source(1)]
        threads = [threading.Thread(target=read_out, args=[source]) for source in sources]
        for thread in threads:
            thread.start()
        seen = {tf.id: [int.from_bytes(bytes(part)) for part in tf.parts] for tf in farm.consume()}
        for thread in threads:
            thread.join()
        farm.wait()
    assert seen == {tf: [tf, tf] for tf in range(20)}


def test_a_dead_epn_loses_nothing():
    tfs = 300
    with sheaf.farm(flps=1, epns=3, config={"icn": {"delivery": "at-least-once"}}) as farm:
        seen: list[list[int]] = [[], [], []]

        def consume(epn: int) -> None:
            for tf in farm.consume(epn):
                seen[epn].append(tf.id)

        threads = [threading.Thread(target=consume, args=[epn]) for epn in range(3)]
        for thread in threads:
            thread.start()
        with farm.source() as source:
            for tf in range(tfs):
                if tf == 100:
                    farm.kill("epn:1")
                source.send(tf, bytes(10_000))
        farm.stop()
        for thread in threads:
            thread.join()
        books = farm.verify()
    assert books["announced"] == tfs, books
    assert {tf for epn in seen for tf in epn} == set(range(tfs))


def test_a_full_farm_says_no_and_goes_on():
    with sheaf.farm(flps=1, epns=1) as farm, farm.source() as source:
        block = bytes(4 << 20)
        sent = 0
        while source.send(sent, block, timeout=0.5):
            sent += 1
        assert sent >= 8
        consumer = iter(farm.consume())
        first = next(consumer)
        assert first.nbytes == len(block)
        del first
        # The same STF again, now with room.
        thread = threading.Thread(target=lambda: [tf.id for tf in consumer])
        thread.start()
        assert source.send(sent, block, timeout=30)
        source.close()
        farm.stop()
        thread.join()


def test_a_kept_tf_outlives_its_turn_and_others_do_not():
    with sheaf.farm(flps=1, epns=1, config={"run": {"timeframes": 3}}) as farm:
        with farm.source() as source:
            for tf in range(3):
                source.send(tf, bytes([tf]))
            first, kept, last = [tf if tf.id != 1 else tf.keep() for tf in farm.consume()]
        with pytest.raises(sheaf.ReturnedError, match="call keep"):
            first.parts
        assert bytes(kept.part(0)) == b"\1"
        view = kept.part(0).data
        kept.done()
        with pytest.raises(sheaf.ReturnedError):
            kept.parts
        assert bytes(view) == b"\1"
        with pytest.raises(TypeError):
            view[0] = 2
        farm.wait()


def test_a_tf_stays_valid_after_its_loop_was_left():
    with sheaf.farm(flps=1, epns=1) as farm:
        source = farm.source()
        source.send(0, b"x")
        for tf in farm.consume():
            break
        assert bytes(tf.part(0)) == b"x"
        tf.done()
        source.close()


def test_threads_look_at_one_tf_while_its_checksums_are_computed():
    with sheaf.farm(flps=1, epns=1, config={"run": {"timeframes": 1}}) as farm, farm.source() as source:
        source.send(0, bytes(8 << 20))
        (tf,) = (tf.keep() for tf in farm.consume())
        checked: list[list[str]] = []
        thread = threading.Thread(target=lambda: checked.extend(tf.faults() for _ in range(20)))
        thread.start()
        while thread.is_alive():
            assert len(tf.parts) == 1
        thread.join()
        tf.done()
    assert checked == [[]] * 20


def test_a_farm_outlives_the_thread_that_started_it():
    started: list[sheaf.Farm] = []
    farms = sheaf.farm(flps=1, epns=1, config={"run": {"timeframes": 1}})
    thread = threading.Thread(target=lambda: started.append(farms.__enter__()))
    thread.start()
    thread.join()
    with started[0].source() as source:
        source.send(0, b"x")
        assert [tf.id for tf in started[0].consume()] == [0]
    started[0].wait()
    farms.__exit__(None, None, None)


def test_consumers_of_asyncio_let_other_tasks_run():
    async def main(farm: sheaf.Farm, source: sheaf.Source) -> list[int]:
        async def produce() -> None:
            for tf in range(20):
                source.send(tf, b"x")
                await asyncio.sleep(0)

        producing = asyncio.create_task(produce())
        seen = [tf.id async for tf in sheaf.consume_async(farm.address(), wait=30)]
        await producing
        return seen

    with sheaf.farm(flps=1, epns=1, config={"run": {"timeframes": 20}}) as farm, farm.source() as source:
        assert sorted(asyncio.run(main(farm, source))) == list(range(20))


def test_several_processes_share_an_epn():
    tfs = 60
    spawn = multiprocessing.get_context("spawn")
    with sheaf.farm(flps=1, epns=1, config={"run": {"timeframes": tfs}}) as farm:
        queue = spawn.Queue()
        workers = [spawn.Process(target=work, args=[farm.address(), queue]) for _ in range(2)]
        for worker in workers:
            worker.start()
        assert [queue.get(timeout=60) for _ in workers] == ["ready", "ready"]
        with farm.source() as source:
            for tf in range(tfs):
                source.send(tf, bytes(1000))
        lists = [queue.get(timeout=60) for _ in workers]
        for worker in workers:
            worker.join()
    assert sorted(lists[0] + lists[1]) == list(range(tfs))
    assert lists[0] and lists[1]


def work(address: str, queue) -> None:
    path = address.removeprefix("shm:")
    consumer = sheaf.Consumer(path)
    queue.put("ready")
    queue.put([tf.id for tf in consumer])


def test_buffers_of_all_kinds_are_taken():
    arrow = pyarrow.py_buffer(b"arrow")
    kinds = [b"ab", bytearray(b"cd"), memoryview(b"efgh")[1:3], numpy.array([1.5]), arrow, b"", numpy.zeros((0, 3))]
    matrix = numpy.arange(6, dtype="int16").reshape(2, 3)
    with sheaf.farm(flps=1, epns=1, config={"run": {"timeframes": 3}}) as farm, farm.source() as source:
        source.send(0, kinds)
        source.send(1, matrix)
        source.send(2, [])
        sent = {tf.id: bytes(tf.part(0)) for tf in farm.consume()}
    assert sent[0] == b"abcdfg" + numpy.array([1.5]).tobytes() + b"arrow"
    assert sent[1] == matrix.tobytes()
    assert sent[2] == b""


def test_wrong_use_of_a_source_says_what_to_do():
    with sheaf.farm(flps=1, epns=1) as farm:
        with pytest.raises(sheaf.BadConfig, match=r"found index 1, expected one below 1 \(run.flps\)"):
            farm.source(1)
        with farm.source() as source:
            for data, error, text in [
                ("text", TypeError, "found <class 'str'>, expected a buffer"),
                ([b"x", 5], TypeError, "found <class 'int'>, expected a buffer"),
                (numpy.arange(10)[::2], ValueError, "numpy.ascontiguousarray"),
                (bytes((16 << 20) + 1), ValueError, r"expected at most 16777216 \(flp.stf_bytes_max\)"),
            ]:
                with pytest.raises(error, match=text):
                    source.send(0, data)
            with pytest.raises(ValueError, match="expected one of: opaque, rdh"):
                source.send(0, b"", format="png")
            with pytest.raises(ValueError, match="timeout=-1"):
                source.send(0, b"", timeout=-1)
            with pytest.raises(sheaf.BadConfig, match="no heartbeats"):
                next(source.heartbeats())
            source.send(5, b"x")
            with pytest.raises(ValueError, match="TF 5 comes after TF 5"):
                source.send(5, b"x")
            source.close(timeout=0)
            with pytest.raises(sheaf.RunOver, match="closed"):
                source.send(6, b"x")


def test_a_farm_file_that_is_no_good_is_refused(tmp_path):
    file = tmp_path / "farm.toml"
    with pytest.raises(sheaf.BadConfig, match="farm.toml.*No such file"):
        sheaf.Source(file)
    file.write_text("[run]\nflps = 'two'\n")
    with pytest.raises(sheaf.BadConfig, match="farm.toml:2"):
        sheaf.Source(file)
    file.write_text("[icn]\naddress = '127.0.0.1:1'\n[flp.source]\nkind = 'generator'\n")
    with pytest.raises(sheaf.BadConfig, match='found flp.source.kind = "generator", expected "program"'):
        sheaf.Source(file)


def test_a_consumer_without_an_epn_says_so(tmp_path):
    with pytest.raises(sheaf.ConsumerError, match="No such file"):
        next(sheaf.consume(f"shm:{tmp_path}/none"))
    with pytest.raises(ValueError, match="expected shm:PATH"):
        next(sheaf.consume("tcp:localhost:1"))


def test_an_interrupt_ends_every_wait():
    with sheaf.farm(flps=1, epns=1) as farm, farm.source() as source:
        consumer = sheaf.Consumer(farm.address().removeprefix("shm:"))
        big = bytes(16 << 20)
        waits = {
            "consumer": lambda: consumer.next(timeout=60),
            "source": lambda: [source.send(tf, big, timeout=5) for tf in range(20)],
        }
        for name, wait in waits.items():
            timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                wait()
            timer.join()
        assert consumer.fileno() >= 0
        consumer.close()
        assert consumer.fileno() == -1
        source.close(timeout=0)


def test_a_fork_is_refused():
    with sheaf.farm(flps=1, epns=1) as farm, farm.source() as source:
        consumer = sheaf.Consumer(farm.address().removeprefix("shm:"))
        child = os.fork()
        if child == 0:
            refused = 0
            for use in [lambda: source.send(0, b""), consumer.next, source.close]:
                try:
                    use()
                except sheaf.ForkError as error:
                    refused += '"spawn"' in str(error)
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 3


def test_a_run_that_an_operator_ends_ends_its_source():
    with sheaf.farm(flps=1, epns=1) as farm, farm.source() as source:
        source.send(0, b"x")
        consumer = farm.consume()
        assert next(consumer).id == 0
        threading.Thread(target=lambda: [tf.id for tf in consumer]).start()
        ends = threading.Thread(target=farm.stop)
        ends.start()
        until = time.monotonic() + 60
        with pytest.raises(sheaf.RunOver):
            for tf in range(1, 1 << 40):
                source.send(tf, b"x", timeout=1)
                assert time.monotonic() < until
        ends.join()


def test_files_of_a_farm_are_read_back(tmp_path):
    config = {
        "run": {"timeframes": 5},
        "epn.sink": {"kind": "file", "directory": str(tmp_path)},
    }
    with sheaf.farm(flps=1, epns=1, config=config) as farm:
        with farm.source() as source:
            for tf in range(5):
                source.send(tf, payload(0, tf))
        farm.stop()
    files = sorted(tmp_path.glob("run-*/*.tf"))
    tfs = [tf for file in files for tf in sheaf.open_tfs(file)]
    assert [tf.id for tf in tfs] == list(range(5))
    assert all(numpy.array_equal(tf.part(0).array("uint32"), payload(0, tf.id)) for tf in tfs)
    with pytest.raises(sheaf.ConsumerError, match="of a file"):
        tfs[0].give_back()
    assert sheaf.data_inspect(files[0])[0]["format"] == "tf-file"
    damaged = tmp_path / "damaged.tf"
    damaged.write_bytes(files[0].read_bytes()[:-3])
    with pytest.raises(sheaf.FileError, match="damaged.tf: byte 0"):
        list(sheaf.open_tfs(damaged))


def test_a_tag_that_nothing_writes_is_refused_and_the_tf_goes_back():
    with sheaf.farm(flps=1, epns=1, config={"run": {"timeframes": 1}}) as farm:
        with farm.source() as source:
            source.send(0, b"x")
            for tf in farm.consume():
                with pytest.raises(sheaf.ConsumerError):
                    tf.give_back("muon")
        farm.wait()
