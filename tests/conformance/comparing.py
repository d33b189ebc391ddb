"""Compares the observed facts of a machine with given facts, and makes given facts false."""

import copy


def missing(said, observed, at=""):
    """Yields a line for each given fact that differs from the observed one. Facts that were not given do not count."""
    if isinstance(said, dict):
        for key, value in said.items():
            there = observed.get(key) if isinstance(observed, dict) else None
            yield from missing(value, there, f"{at}.{key}" if at else key)
    elif at == "interfaces":
        by_name = {interface["name"]: interface for interface in observed or []}
        for interface in said:
            yield from missing(interface, by_name.get(interface["name"]), f"{at}.{interface['name']}")
    elif isinstance(said, bool) or isinstance(observed, bool):
        if (said or False) is not (observed or False) or (observed is None and at.startswith("cloud.")):
            yield f"{at} is {said}, observed was {observed}"
    elif isinstance(said, list) and said and isinstance(said[0], dict):
        for index, value in enumerate(said):
            there = observed[index] if isinstance(observed, list) and index < len(observed) else None
            yield from missing(value, there, f"{at}.{index}")
    elif isinstance(said, list):
        if said != observed:
            yield f"{at} is {said}, observed was {observed}"
    elif str(said) != str(observed if observed is not None else ""):
        yield f"{at} is {said!r}, observed was {observed!r}"


def leaves(facts, at=()):
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from leaves(value, at + (key,))
        elif isinstance(value, list):
            yield from leaves_of_list(value, at + (key,))
        else:
            yield at + (key,), value


def leaves_of_list(values, at):
    for index, value in enumerate(values):
        if isinstance(value, dict):
            yield from leaves(value, at + (str(index),))
        elif isinstance(value, list):
            yield from leaves_of_list(value, at + (str(index),))
        else:
            yield at + (str(index),), value


def falsified(facts, path):
    """Returns the facts with a false value at `path`."""
    facts = copy.deepcopy(facts)
    *parents, last = path.split(".")
    holder = facts
    for parent in parents:
        holder = holder[int(parent) if isinstance(holder, list) else parent]
    last = int(last) if isinstance(holder, list) else last
    value = holder[last]
    if isinstance(value, bool):
        holder[last] = not value
    elif isinstance(value, int):
        holder[last] = value + 1
    elif parents and parents[0] == "interfaces" and last == "name":
        # With one more letter, the name differs from the names of all other interfaces.
        holder[last] = value + "x"
    else:
        # Only the last character changes, so that the value is still an address.
        holder[last] = value[:-1] + ("1" if value[-1] == "0" else "0")
    return facts


def lies_about(facts):
    """Yields the paths of facts that can be made false: all but the processor, devices of interfaces, empty values, and the name of
    the loopback interface."""
    for path, value in leaves(facts):
        if path != ("arch",) and path[-1] != "virtual" and value not in ("", "lo"):
            yield ".".join(path)


def is_noticed(path, facts, said):
    """Whether the output `said` reports a mismatch of this fact, or of the list that contains it."""
    at = path.split(".")
    if at[0] == "interfaces":
        interface = facts["interfaces"][int(at[1])]
        return f"interfaces.{interface['name']}.{at[2]} is " in said
    # A list of texts is compared as one value, so the message has no index of an item.
    return f"{'.'.join(at[:-1] if at[-1].isdigit() else at)} is " in said
