"""A table of what works under which trainer, at the end of the run, as the guide has it."""

from __future__ import annotations

from typing import Any

TITLES = {
    "lightning_fit": "Lightning",
    "fabric_loop": "Fabric",
    "accelerate_loop": "Accelerate",
    "transformers_trainer": "Transformers",
    "plain_loop": "torchdata, torchrun",
}
#: The words of a case, and what a user writes.
WRITTEN = {
    "": "",
    "own sampler": "`use_distributed_sampler=False`",
    "hooks": "its state in `on_save_checkpoint` and `on_load_checkpoint`",
    "made by the model": "made in `train_dataloader`",
    "spawn": "processes are spawned",
    "itself": "not set up by the trainer",
    "skipped": "`skip_first_batches`",
    "said": "`set_epoch` before each epoch",
    "predict": "`predict`",
    "overfit": "`overfit_batches`",
    "prepared": "`accelerator.prepare`",
    "nodes": "in `torchdata.nodes`",
    "cached": "`cache=`",
}


def written(case: dict[str, Any]) -> str:
    """Return what a user writes beside the loader."""
    words = [WRITTEN[word.strip()] for word in case["given"].split(",")]
    words += ["`rank=0, ranks=1`"] * case["whole"]
    return "; ".join(filter(None, words))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, case in report.user_properties:
                if name == "case":
                    trainer = f"{TITLES[case['program']]} {case['version']}"
                    result = case["expects"] if outcome == "passed" else "**fails**"
                    if result not in ("exact", "once", "**fails**"):
                        result = "refused"
                    key = trainer, case["way"], written(case), result
                    found.setdefault(key, []).append(case)
    if not found:
        return
    terminalreporter.section("trainers")
    terminalreporter.write_line("| trainer | loader | with | processes | stopped at | result |")
    terminalreporter.write_line("|---|---|---|---|---|---|")
    for key, cases in found.items():
        processes = ", ".join(map(str, sorted({case["processes"] for case in cases})))
        stops = ", ".join(dict.fromkeys(case["stop"] for case in cases if case["stop"]))
        row = (*key[:3], processes, stops, key[3])
        terminalreporter.write_line("| " + " | ".join(row) + " |")
