"""Reads logs with Inspect and prints what it found, as JSON. Runs in Inspect's own environment."""

import dataclasses
import inspect
import json
import sys

import inspect_ai.log as logs
import inspect_ai.model as model
import inspect_ai.scorer as scorer
import inspect_ai.tool as tool
from pydantic import BaseModel


def found(folder):
    """Return what Inspect says of each log of a folder, by task."""
    made = {}
    for info in logs.list_eval_logs(folder):
        log = logs.read_eval_log(info)
        told = metrics(log)
        logs.recompute_metrics(log)
        summaries = logs.read_eval_log_sample_summaries(info)
        own = [sample.summary() for sample in log.samples]
        one = log.samples[-1]
        by_name = logs.read_eval_log_sample(info, id=one.id, epoch=one.epoch)
        by_uuid = logs.read_eval_log_sample(info, uuid=one.uuid)
        made[info.task] = {
            "id": info.task_id == log.eval.task_id,
            "status": log.status,
            "told": told,
            "computed": metrics(log),
            "samples": len(log.samples),
            "summaries": dump(sorted(summaries, key=key)) == dump(sorted(own, key=key)),
            "found": by_name.uuid == by_uuid.uuid == one.uuid,
            "first": json.loads(log.samples[0].model_dump_json()),
        }
    return made


def metrics(log):
    return {
        f"{score.name}.{name}": metric.value
        for score in log.results.scores
        for name, metric in score.metrics.items()
    }


def key(summary):
    return str(summary.id), summary.epoch


def dump(summaries):
    return [summary.model_dump() for summary in summaries]


def fields(names):
    """Return each model's fields, and those that are required."""
    made = {}
    for name in names:
        kind = next(
            getattr(module, name) for module in (logs, model, scorer, tool) if hasattr(module, name)
        )
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            known = {k: v.is_required() for k, v in kind.model_fields.items()}
        else:
            missing = dataclasses.MISSING
            known = {
                field.name: field.default is missing and field.default_factory is missing
                for field in dataclasses.fields(kind)
            }
        made[name] = {"all": sorted(known), "required": sorted(k for k in known if known[k])}
    return made


if __name__ == "__main__":
    folder, *names = sys.argv[1:]
    json.dump({"logs": found(folder), "models": fields(names)}, sys.stdout)
