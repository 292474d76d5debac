"""Resolving a configuration: preset or file, then `--set` overrides, then validation.

All mistakes of a configuration become one ConfigError, which names each field, its value and what
is allowed.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from genenv_core.canonical import digest, section_of
from genenv_core.config.moved import as_named, check_moved, with_gone
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.data import DomainConfig
from genenv_core.config.sections.unions.alternatives import TAG, paths_of, sections_of
from genenv_core.config.several import one_or_the_other, with_one_section
from genenv_core.errors import ConfigError, one_line
from genenv_core.machine.wrong_values import closest, refusal
from genenv_core.named_files import unreadable

_PRESETS = files("genenv_core.config") / "presets"
PRESET = "preset"
"""The field of a file that names the preset it starts from; all its other fields are changes."""

FREE_SECTIONS = ("execution", "placement", "tracking", "measure", "roots", "limits", "prices")
"""Sections that a run may change while it goes on: no stage key has a field of them."""

NOT_IDENTITY = ("run_id", "root", "epochs", *FREE_SECTIONS)
"""Fields that do not make another run: more epochs, other intervals or other machines continue the
same one."""

NEAR = 0.6
"""Least likeness, from 0 to 1, of a field that an error about an unknown name suggests."""
BESIDE = 0.1
"""What a field of the same section gains in likeness."""
ALIKE = 0.04
"""An error also suggests fields that are at most this much less like than the best one."""


class _UniqueKeys(yaml.SafeLoader):
    """YAML's safe loader, which by itself lets the last of two equal keys win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping; raises a YAMLError that marks a key given twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name!r} is given twice", key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


def preset_names() -> list[str]:
    """Return the names of the presets, sorted."""
    return sorted(
        item.name.removesuffix(".yaml")
        for item in _PRESETS.iterdir()
        if item.name.endswith(".yaml")
    )


def resolve(
    source: str = "quickstart",
    *,
    overrides: Iterable[str] = (),
    fields: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Return the configuration of a preset name or a YAML file, with overrides applied.

    `overrides` are `a.b=value` texts (the value is YAML); `fields` are top-level values from
    options, applied last, None meaning not given. Raises ConfigError.
    """
    return overridden(preset_values(source), source, overrides=overrides, fields=fields)


def overridden(
    values: Mapping[str, Any],
    where: str,
    *,
    overrides: Iterable[str] = (),
    fields: Mapping[str, Any] | None = None,
    option: str = "--set",
) -> RunConfig:
    """Return the configuration of plain values with overrides, as `resolve` does for a preset.

    Raises ConfigError, which opens with `where` the values come from, or with `option`.
    """
    return validated(with_overrides(values, overrides, option), where, fields)


def with_overrides(
    values: Mapping[str, Any], overrides: Iterable[str], option: str = "--set"
) -> dict[str, Any]:
    """Return nested values with `a.b=value` texts applied in order.

    Raises ConfigError, which opens with the `option` or field that the texts were given in.
    """
    given = list(overrides)
    one_or_the_other((text.partition("=")[0].strip() for text in given), option)

    def applied(base: Mapping[str, Any]) -> Mapping[str, Any]:
        for text in given:
            base = _overridden(base, text, option)
        return base

    return _of_its_domain(values, applied)


def validated(
    values: Mapping[str, Any], where: str, fields: Mapping[str, Any] | None = None
) -> RunConfig:
    """Return the configuration of plain values; `fields` replace top-level ones, unless None.

    Raises ConfigError, which opens with `where` the values come from.
    """
    given = {name: value for name, value in (fields or {}).items() if value is not None}
    try:
        return RunConfig.model_validate(with_one_section({**values, **given}))
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error)}") from error


def as_recorded(
    recorded: Mapping[str, Any], run: str, fields: Mapping[str, Any] | None = None
) -> RunConfig:
    """Return the configuration that a run was started with; `fields` replace top-level ones.

    Raises ConfigError for one that this genenv does not know.
    """
    try:
        return validated(recorded, f"run {run}", fields)
    except ConfigError as error:
        raise ConfigError(
            f"{error}. Another version of genenv recorded this run: continue it with that version, "
            "or start a new run"
        ) from error


def continued(
    recorded: Mapping[str, Any],
    run: str,
    changes: Mapping[str, Any],
    where: str,
    fields: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Return the configuration that a run goes on with: as recorded, but for free sections.

    `changes` are sections or dotted fields. Raises ConfigError, which opens with `where` they come
    from, for a change that would make another run, and as `as_recorded` does.
    """
    fixed = sorted(name for name in changes if name.partition(".")[0] not in FREE_SECTIONS)
    if fixed:
        raise ConfigError(
            f"{where}: {', '.join(fixed)}: a run goes on with the configuration it was started "
            f"with, except for {', '.join(FREE_SECTIONS)}: leave it out, or start another run"
        )
    as_recorded(recorded, run, fields)  # its own faults come before those of the changes
    return validated(changed(recorded, changes), where, fields)


def run_name(config: RunConfig, source: str) -> str:
    """Return the run id: the configured one, or preset, arm, seed and a digest of the rest."""
    if config.run_id:
        return config.run_id
    used = {
        "benchmark": config.benchmark.given,
        # Runs from before these sections keep their names.
        "refill": config.refill.groups > 0,
        "agent_update": config.agent_update.own,
    }
    unused = [section for section, in_use in used.items() if not in_use]
    name = stem(config.domain.name) if config.benchmark.given else config.arm.value
    return f"{stem(source)}-{name}-s{config.seed}-{digest(identity(config, but=unused))[:6]}"


def identity(config: RunConfig, but: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields that make a run another one when they change, without those in `but`."""
    fields = config.model_dump(mode="json", by_alias=True, exclude={*NOT_IDENTITY, *but})
    return as_named(with_gone(fields))


def stem(source: str) -> str:
    """Return the name of a preset or a file as it stands in the names of its runs."""
    name = Path(source).stem if source.endswith((".yaml", ".yml")) else source
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("._-") or "run"
    return safe[:40]


def dump(config: RunConfig) -> dict[str, Any]:
    """Return the configuration as plain JSON values, under the names that files use."""
    return config.model_dump(mode="json", by_alias=True)


def to_yaml(config: RunConfig) -> str:
    """Return the configuration as a YAML file that resolves to itself."""
    return yaml.safe_dump(dump(config), sort_keys=False, allow_unicode=True)


def preset_values(source: str) -> dict[str, Any]:
    """Return the values that a preset or a file sets, nested; the schema's defaults fill the rest.

    For a file that starts from a preset, they are the preset's values with the file's own on top.
    Raises ConfigError.
    """
    values = own_values(source)
    if PRESET not in values:
        return values
    first = values.pop(PRESET)
    if first not in preset_names():
        known = ", ".join(preset_names())
        raise ConfigError(f"{source}: {PRESET} {first!r} is not one of {known}")
    return _of_its_domain(preset_values(first), lambda base: changed(base, values))


def own_values(source: str) -> dict[str, Any]:
    """Return the values that a preset or a file itself holds, nested, the field `preset` included.

    Raises ConfigError.
    """
    if source in preset_names():
        text, where = (_PRESETS / f"{source}.yaml").read_text(encoding="utf-8"), source
    else:
        path = Path(source)
        why = unreadable(path)
        if why and os.path.lexists(path):
            raise ConfigError(f"{source}: {why}")
        if why:
            hint = closest(source, preset_names())
            raise ConfigError(
                f"{source!r} is neither a preset ({', '.join(preset_names())}) nor a file{hint}"
            )
        where = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where}: cannot be read: {error}") from error
    try:
        values: Any = yaml.load(text, _UniqueKeys)  # a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: is no YAML: {one_line(error)}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"{where}: holds a {type(values).__name__}, expected `field: value` lines"
        )
    try:
        check_moved(cast(dict[str, Any], values))
        return with_one_section(cast(dict[str, Any], values))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def with_changes(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `changed` values; when the domain changes, the old domain's options go."""
    return _of_its_domain(values, lambda base: changed(base, changes))


def _of_its_domain(
    values: Mapping[str, Any], apply: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return values with changes; when these name another domain, the old one's options go."""
    made = apply(values)
    usual = DomainConfig().name
    before = section_of(values, "domain")
    if section_of(made, "domain").get("name", usual) != before.get("name", usual):
        kept = {name: one for name, one in before.items() if name != "options"}
        made = apply({**values, "domain": kept})
    return dict(made)


def read_override(text: str, where: str) -> tuple[str, Any]:
    """Return field and value of `a.b=value`, whose value is YAML.

    Raises ConfigError, which opens with `where` the text was given.
    """
    name, separator, raw = text.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"{where} {text!r}: expected field=value, for example rwr.steps=4")
    try:
        value: Any = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} {text!r}: the value is no YAML: {one_line(error)}") from error
    return name.strip(), value


def _overridden(values: Mapping[str, Any], text: str, option: str) -> dict[str, Any]:
    name, value = read_override(text, option)
    try:
        return changed(values, {name: value})
    except ConfigError as error:
        raise ConfigError(f"{option} {text!r}: {error}") from error


def changed(
    values: Mapping[str, Any],
    changes: Mapping[str, Any],
    model: type[BaseModel] | None = RunConfig,
) -> dict[str, Any]:
    """Return nested values with changes on top, which may be sections or dotted fields.

    Changes merge into a section of `model` field by field. They replace any other mapping, such as
    `domain.options`, as a whole; a dotted name reaches into it. Raises ConfigError for a dotted
    name below something that is a value.
    """
    merged = dict(values)
    if model is RunConfig:
        changes = with_one_section(changes)
        check_moved(changes)
    for name, value in changes.items():
        head, _, rest = str(name).partition(".")  # YAML also has keys that are numbers
        inner = next(iter(_sections(model, head)), None)
        more = {rest: value} if rest else value
        if rest or (inner and isinstance(more, Mapping)):
            below = merged.get(head, {})
            if not isinstance(below, Mapping):
                raise ConfigError(f"{head!r} is a value, not a section")
            more = changed(cast(Mapping[str, Any], below), cast(Mapping[str, Any], more), inner)
        merged[head] = more
    return merged


def _sections(model: type[BaseModel] | None, name: str) -> tuple[type[BaseModel], ...]:
    """Return the models that a section may have; () where `name` is no section."""
    field = model.model_fields.get(name) if model else None
    return sections_of(field.annotation) if field else ()


def explain(error: ValidationError, model: type[BaseModel] = RunConfig) -> str:
    """Return what is wrong with the values of a model, field by field, in one line."""
    lines: list[str] = []
    for item in error.errors()[:5]:
        place = tuple(part for part in item["loc"] if not str(part).startswith((TAG, "[key]")))
        path = ".".join(map(str, place)) or "configuration"
        if item["type"] == "extra_forbidden":
            lines.append(f"{path} is no field{_meant(tuple(map(str, place)), model)}")
        elif item["type"] == "missing" and (giver := _giver(item["loc"])):
            lines.append(f"{giver} needs {path}: set it")
        elif item["type"] == "value_error":
            said, name = item["msg"].removeprefix("Value error, "), path.rpartition(".")[2]
            # A field's own validator begins its message with the bare name.
            named = said.startswith(f"{name} ")
            lines.append(f"{path}{said.removeprefix(name)}" if named else said)
        else:
            lines.append(f"{path}: {refusal(item)}{_with_fields(item, path, model)}")
    more = len(error.errors()) - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")


def _with_fields(item: ErrorDetails, path: str, model: type[BaseModel]) -> str:
    """Return what to write where a section was given a plain value; '' for other errors."""
    below = (one for one in paths_of((model,)) if one.startswith(f"{path}."))
    first = next(below, "") if item["type"].startswith("model") else ""
    return f": set its fields, as in {first}=VALUE" if first else ""


def _giver(location: tuple[int | str, ...]) -> str:
    """Return the field that makes another one of its section mandatory, '' without such a field."""
    *above, tag, _ = ("", *map(str, location))
    return ".".join((*above[1:], tag.strip("<>"))) if tag.startswith(TAG) else ""


def _meant(place: tuple[str, ...], model: type[BaseModel]) -> str:
    """Return "did you mean" with like fields of the section, else with those of other sections."""
    *section, name = place
    scored: dict[str, float] = {}
    for path in paths_of((model,)):
        *above, leaf = path.split(".")
        near = difflib.SequenceMatcher(None, name, leaf).ratio()
        scored[path] = near + (BESIDE if above == section else 0)
    best = max(scored.values())
    if best < NEAR:
        beside = [path.rpartition(".")[2] for path in scored if path.split(".")[:-1] == section]
        return f" ({'.'.join(section)} has {', '.join(beside)})" if section and beside else ""
    near = sorted(scored, key=lambda path: (-scored[path], len(path)))
    named = [repr(path) for path in near[:3] if scored[path] >= best - ALIKE]
    return f" (did you mean {' or '.join(named)}?)"
