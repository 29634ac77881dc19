"""Two processes joined by gloo that run the same function with the same arguments, kept for a whole test session."""

import multiprocessing
import os
import pickle
import tempfile
import traceback
from pathlib import Path

import torch

WORLD_SIZE = 2
PATIENCE_S = 120


class TwoRanks:
    """Runs functions on two ranks; the processes start at the first call, and anew after a failed one.

    What is sent and what comes back must be picklable, functions by name from an importable module.
    """

    def __init__(self):
        self.processes, self.pipes = [], []

    def __call__(self, function, *args, **kwargs):
        """Return each rank's result, in order; raise `RuntimeError` with the traceback of a rank that failed."""
        if not self.processes:
            self.start()
        for pipe in self.pipes:
            pipe.send((function, args, kwargs))
        answers = {}
        while len(answers) < WORLD_SIZE:
            waiting = [pipe for pipe in self.pipes if self.pipes.index(pipe) not in answers]
            ready = multiprocessing.connection.wait(waiting, timeout=PATIENCE_S)
            if not ready:
                self.stop()
                raise RuntimeError(f"ranks {sorted({0, 1} - set(answers))} did not answer for {PATIENCE_S} s")
            for pipe in ready:
                failure, result = pickle.loads(pipe.recv())
                if failure:
                    self.stop()  # the other rank waits for this one
                    raise RuntimeError(failure)
                answers[self.pipes.index(pipe)] = result
        return [answers[rank] for rank in range(WORLD_SIZE)]

    def start(self):
        meeting_point = Path(tempfile.mkdtemp()) / "store"  # a port could be taken until the processes are up
        context = multiprocessing.get_context("spawn")
        for rank in range(WORLD_SIZE):
            mine, theirs = context.Pipe()
            process = context.Process(target=serve, args=(rank, meeting_point, theirs), daemon=True)
            process.start()
            self.processes.append(process)
            self.pipes.append(mine)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()
        self.processes, self.pipes = [], []


def serve(rank, meeting_point, pipe):
    """Join the process group, once, and run what comes through the pipe."""
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE)}  # tells Lightning to start no processes
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=WORLD_SIZE
    )
    while True:
        function, args, kwargs = pipe.recv()
        try:
            answer = ("", function(*args, **kwargs))
        except Exception:
            answer = (f"rank {rank}: {traceback.format_exc()}", None)
        pipe.send(pickle.dumps(answer))
