"""Checks every #include of the project against the dependency graph of docs/design/folders.md.

usage: edges_test.py SOURCE_DIR
"""
import fnmatch
import pathlib
import re
import sys

# folder -> what it may include besides itself: folders, and single headers of others. The longest matching folder counts.
BASE = ["base"]
RUN = ["run/data", "run/model", "run/file", "run/tokens", "run/boundary", "run/plan", "run/published",
       "run/kinds", "run/replicas", "run/schedule", "run/exporting", "run/stored"]
STATE = ["coordinator/state/" + folder for folder in
         ("ledger", "workers", "life", "shards", "planning", "recovery", "verify", "queries", "sessions")]
# What every component of the state machine may use.
STATE_BASE = BASE + RUN + ["messages", "planner", "coordinator/state/books",
                           *("coordinator/state/" + header for header in (
                               "blob_names.h", "commands.h", "events.h", "ids.h", "layer_times.h", "member_limits.h",
                               "once.h", "options.h",
                               "resume.h", "run_record.h", "text.h"))]
ALLOWED = {
    "base": [],
    "base/cuda": BASE,
    "base/yaml": BASE,
    "base/flags": BASE,
    "base/http": BASE,
    "base/remote": BASE + ["base/http"],
    "base/metrics": BASE,
    "proto/wire": BASE,
    "proto/identity": BASE,
    "proto/rpc": BASE + ["proto/identity"],
    # How a program becomes and is a member: what workers, the CLI and clusters share.
    "proto/member": BASE + ["proto/identity", "proto/rpc", "messages"],
    # The third voter beside two coordinators: its rules, and the program.
    "proto/witness": BASE + ["proto/identity", "proto/member", "proto/rpc", "messages"],
    "codec": BASE,
    "python/ops": BASE + ["codec"],
    "run/model": BASE,
    "run/replicas": BASE + ["codec/codec_string.h"],
    "run/kinds": BASE,
    "run/file": BASE + ["codec/codec_string.h", "codec/registry.h", "codec/spec.h", "codec/taco/format.h", "run/kinds", "run/model", "run/tokens", "run/replicas"],
    "run/tokens": BASE,
    "run/data": BASE + ["run/tokens"],
    "run/boundary": BASE + ["run/model", "run/file", "run/kinds", "run/plan", "codec"],
    "run/plan": BASE + ["codec/spec.h"],
    "run/published": BASE + ["run/model", "codec/convert.h"],
    "run/published/remote": BASE + ["base/http", "base/remote", "run/published"],
    # A checkpoint as a published model, for the CLI and for hooks of the coordinator.
    "run/exporting": BASE + ["base/remote", "run/data", "run/file", "run/model", "run/published"],
    "run/plan/proto": BASE + ["run/plan", "messages"],
    "run/stored": BASE + ["run/plan/proto", "messages"],
    "run/schedule": BASE + ["run/kinds", "run/plan"],
    "transport/p2p": BASE + ["proto/wire"],
    "transport/p2p/grpc": BASE + ["proto/wire", "proto/rpc", "transport/p2p"],
    # Only the registry names concrete backends.
    "transport/p2p/registry": BASE + ["run/kinds", "transport/p2p"],
    "transport/p2p/loopback": BASE + ["proto/wire", "transport/p2p"],
    # Who may meet whom at a relay, and the relay itself.
    "transport/relay": BASE + ["proto/rpc", "proto/wire"],
    # What backends of byte streams share.
    "transport/p2p/stream": BASE + ["proto/wire", "transport/p2p", "transport/relay/congestion.h",
                             "transport/relay/socket.h"],
    "transport/p2p/relay": BASE + ["proto/wire", "transport/p2p", "transport/p2p/stream",
                                   "transport/relay/socket.h", "transport/relay/ticket.h"],
    "transport/p2p/tcp": BASE + ["proto/rpc", "transport/p2p", "transport/p2p/stream", "transport/relay/socket.h"],
    "transport/p2p/ucx": BASE + ["proto/wire", "transport/p2p"],
    "transport/collective": BASE,
    "transport/collective/host": BASE + ["transport/collective"],
    "transport/collective/nccl": BASE + ["base/cuda", "transport/collective", "transport/collective/engine"],
    "transport/collective/mapped": BASE + ["base/cuda", "transport/collective", "transport/collective/engine"],
    "transport/collective/engine": BASE + ["base/cuda", "transport/collective"],
    "transport/collective/exact": BASE + ["base/cuda", "transport/collective", "transport/collective/engine"],
    "transport/collective/zip": BASE + ["base/cuda", "codec", "transport/collective",
                                        "transport/collective/engine"],
    "transport/collective/taco": BASE + ["base/cuda", "codec", "transport/collective",
                                         "transport/collective/engine"],
    "transport/collective/switcher": BASE + ["base/cuda", "transport/collective",
                                             "transport/collective/engine"],
    "transport/replicas": BASE + ["proto/wire", "run/model", "run/replicas", "codec"],
    # Collectives without a backend, as programs name those; and the arithmetic of replicas' exchanges.
    "worker/stage": BASE + ["run/model", "run/file", "run/boundary", "run/plan/collective_bytes.h", "run/replicas",
                            "codec", "transport/collective/communicator.h", "transport/collective/member.h",
                            "transport/replicas/arithmetic.h", "transport/replicas/dense.h"],
    # Which backends the ranks of a group exchange by.
    "worker/ranks": BASE + ["base/cuda", "run/boundary", "run/file", "transport/collective",
                            "transport/collective/exact", "transport/collective/host", "transport/collective/mapped",
                            "transport/collective/nccl",
                            "transport/collective/switcher",
                            "transport/collective/taco", "transport/collective/zip", "worker/stage"],
    "worker/checkpoint": BASE + ["run/published", "worker/stage"],
    "worker/data": BASE + ["run/data", "run/tokens"],
    "worker/pipeline": BASE + RUN + ["proto/wire", "messages", "codec", "transport/p2p", "transport/replicas",
                                     "worker/data", "worker/stage", "worker/checkpoint"],
    # Copies of checkpoint shards on their way to others.
    "worker/shards": BASE + ["proto/member", "proto/rpc", "proto/wire", "messages", "run/stored", "transport/p2p",
                             "worker/checkpoint",
                             "worker/pipeline/traffic_watch.h"],
    # What a worker knows of itself, of its links and of whom it reaches, before there is a plan.
    "worker/measuring": BASE + RUN + ["proto/wire", "messages", "codec", "transport/p2p", "worker/stage",
                                      "worker/pipeline"],
    # One assignment carried out.
    "worker/epoch": BASE + ["base/http"] + RUN + ["proto/member", "proto/rpc", "proto/wire", "messages", "codec",
                            "transport/p2p", "worker/data", "worker/stage", "worker/checkpoint", "worker/pipeline",
                            "worker/measuring", "worker/shards"],
    # The steps of another worker's cell, computed again.
    "worker/audit": BASE + RUN + ["proto/wire", "messages", "transport/p2p", "worker/checkpoint", "worker/pipeline",
                                  "worker/epoch"],
    # What a worker does on its coordinator's commands.
    "worker/agent": BASE + RUN + ["proto/member", "proto/rpc", "messages", "codec", "worker/stage", "worker/pipeline",
                                  "worker/audit", "worker/epoch", "worker/measuring", "worker/shards"],
    # Whether a worker listens where anybody can reach it decides whether links are encrypted.
    "planner": BASE + RUN + ["messages", "codec", "transport/replicas"],
    # The state machine: what comes in and goes out, and the components, each folder above the ones before it.
    "coordinator/state": BASE + RUN + ["messages", "planner", "coordinator/state/books", *STATE],
    # Nothing of the state machine itself.
    "coordinator/state/books": BASE + ["run/file", "run/plan", "run/stored", "messages", "coordinator/state/ids.h",
                                       "coordinator/state/text.h"],
    "coordinator/state/ledger": STATE_BASE,
    "coordinator/state/workers": STATE_BASE + STATE[:1] + ["transport/relay/ticket.h"],
    "coordinator/state/life": STATE_BASE + STATE[:2] + ["codec"],
    # The pace of copies, which the limits reckon with.
    "coordinator/state/shards": STATE_BASE + STATE[:3] + ["proto/wire/transfer_word.h"],
    "coordinator/state/planning": STATE_BASE + STATE[:4],
    "coordinator/state/recovery": STATE_BASE + STATE[:4],
    "coordinator/state/verify": STATE_BASE + STATE[:4],
    "coordinator/state/queries": STATE_BASE + STATE[:7],
    "coordinator/state/sessions": STATE_BASE + STATE[:8],
    "coordinator/store": BASE + RUN + ["messages", "proto/identity", "codec", "coordinator/lead/history.h",
                                       "coordinator/state"],
    # Programs of run files, and exports for them.
    "coordinator/hooks": BASE + RUN + ["messages", "coordinator/state", "coordinator/store"],
    # Which of two coordinators leads: pure.
    "coordinator/lead": BASE + ["proto/witness/rules.h"],
    # A coordinator that follows another, and which of them commands.
    "coordinator/standby": BASE + ["messages", "proto/identity", "proto/member", "proto/rpc", "proto/witness",
                                   "coordinator/lead", "coordinator/store"],
    # What people are shown of replies, on the command line and in the dashboard.
    "coordinator/view": BASE + ["run/plan", "messages"],
    "coordinator/http": BASE + ["messages", "coordinator/view"],
    "coordinator/rpc": BASE + RUN + ["messages", "proto/identity", "proto/rpc", "codec", "transport/relay",
                                     "planner", "coordinator/hooks", "coordinator/http", "coordinator/lead",
                                     "coordinator/standby",
                                     "coordinator/state", "coordinator/store"],
    "deploy/cluster": BASE + ["run/file", "messages", "proto/member", "proto/rpc"],
    "cli": BASE + ["base/http"] + RUN + ["messages", "proto/member", "proto/rpc", "codec",
                                     "planner", "coordinator/view"],
    "deploy/sweep": BASE + RUN + ["messages", "codec", "planner", "cli",
                                  "deploy/cluster", "deploy/python_program.h"],
    "deploy": BASE + ["cli", "deploy/cluster", "deploy/sweep"],
    # Programs.
    "programs": BASE + ["proto/identity", "proto/member", "proto/rpc", "messages", "run/kinds", "run/published", "codec", "transport/p2p",
                        "transport/relay", "worker", "coordinator", "deploy"],
}
# No program links more than one of these parts.
PROGRAMS = {
    "programs/longhaul.cc": ["base", "cli", "deploy"],
    "programs/longhaul_codec.cc": ["base", "codec", "deploy/python_program.h"],
    "programs/longhaul_coordinator.cc": ["base", "proto/identity", "proto/rpc", "proto/witness", "coordinator/rpc", "coordinator/standby",
                                         "coordinator/state", "coordinator/store"],
    "programs/longhaul_generate.cc": ["base", "run", "worker/ranks", "worker/stage"],
    "programs/longhaul_worker.cc": ["base", "run/kinds", "proto/member", "proto/rpc", "proto/witness", "messages", "programs", "transport/p2p",
                                    "transport/relay", "worker", "codec/python/host.h", "deploy/python_program.h"],
    "programs/longhaul_worker_flags.cc": ["base", "run/kinds", "proto/rpc", "programs", "transport/p2p/registry", "worker/agent"],
    "programs/longhaul_worker_flags.h": ["base", "run/kinds", "worker/agent"],
}
# A backend shows its factory alone.
FACTORY_ONLY = ("transport/p2p/grpc/", "transport/p2p/ucx/", "transport/p2p/loopback/",
                "transport/p2p/relay/",
                "transport/collective/exact/", "transport/collective/host/", "transport/collective/nccl/", "transport/collective/zip/",
                "transport/collective/taco/", "transport/collective/switcher/")
# Headers of libraries, and the folders that may see them.
FOREIGN = {
    r"(torch|ATen|c10)/": ["worker/stage", "python/ops"],
    r"ucp/|ucs/|uct/": ["transport/p2p/ucx"],
    r"openssl/": ["base", "proto/identity", "proto/member"],
    r"grpcpp/|grpc/": ["proto/rpc", "proto/member", "proto/witness", "transport/p2p/grpc", "worker/agent", "worker/epoch", "worker/shards", "coordinator/rpc", "coordinator/standby",
                          "cli"],
    r"transport/p2p/\w+/factory\.h": ["transport/p2p"],
    r"sqlite3\.h": ["coordinator/store"],
    r"yaml-cpp/": ["base/yaml"],
    r"hwy/": ["codec"],
    r"curl/": ["base/http"],
    r"httplib\.h": ["coordinator/http", "base/web/server"],
    r"CLI/": ["base/flags", "cli", "deploy", "programs"],
    r"cuda[_.]|cub/|cooperative_groups": ["base/cuda/module", "codec/cuda/module", "codec/*/cuda", "transport/collective/engine/module"],
    # The coordinator and the CLI know no GPU.
    r"base/cuda/(?!module/)": ["base/cuda", "worker", "codec/cuda", "codec/tool", "python/ops",
                               "transport/collective/mapped", "transport/collective/nccl", "transport/collective/engine",
                               "transport/collective/exact", "transport/collective/zip", "transport/collective/taco",
                               "transport/collective/switcher", "programs/longhaul_worker.cc"],
    r"base/cuda/module/": ["base/cuda/module"],
}
# Names, and the files that may use them: what differs between families stands in their descriptors.
NAMES = {
    r"ModelFamily::k": ["run/model", "run/published", "worker/stage/model/model.cc"],
}
INCLUDE = re.compile(r'^\s*#include\s+["<]([^">]+)[">]', re.MULTILINE)


def folder_of(path):
    """The longest folder of the graph that holds `path`."""
    if path.startswith("longhaul/v1/"):
        return "messages"
    best = ""
    for folder in ALLOWED:
        if path.startswith(folder + "/") and len(folder) > len(best):
            best = folder
    return best


def under(path, folders):
    """Whether `path` is one of `folders`, which may have a *, or lies in one."""
    return any(path == f or path.startswith(f + "/") or fnmatch.fnmatchcase(path, f + "/*") for f in folders)


def check(root, relative, errors):
    text = (root / relative).read_text(encoding="utf-8")
    own = folder_of(relative)
    for pattern, files in NAMES.items():
        if re.search(pattern, text) and not under(relative, files):
            errors.append(f"{relative}: {pattern} belongs to {', '.join(files)} alone")
    for include in INCLUDE.findall(text):
        for pattern, folders in FOREIGN.items():
            if re.match(pattern, include) and not under(relative, folders):
                errors.append(f"{relative}: <{include}> belongs to {', '.join(folders)} alone")
        if include.startswith("tests/"):
            errors.append(f"{relative}: includes {include}, which is for tests")
        target = folder_of(include)
        if not target:
            continue
        if include.startswith(FACTORY_ONLY) and not include.endswith("/factory.h"):
            if own != target:
                errors.append(f"{relative}: of {target} only factory.h may be included")
        if relative in PROGRAMS:
            if not under(target, PROGRAMS[relative]) and include not in PROGRAMS[relative]:
                errors.append(f"{relative}: may not include {include}")
        elif not own:
            errors.append(f"{relative}: its folder is not in the dependency graph")
            return
        elif target != own and not under(target, ALLOWED[own]) and include not in ALLOWED[own]:
            errors.append(f"{relative}: {own} may not use {target} ({include})")


def main():
    root = pathlib.Path(sys.argv[1])
    errors, count = [], 0
    for part in ["base", "proto", "run", "codec", "python", "transport", "worker", "planner", "coordinator", "cli", "deploy", "programs"]:
        for path in sorted((root / part).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh"):
                count += 1
                check(root, path.relative_to(root).as_posix(), errors)
    print("\n".join(errors) or f"{count} files follow the graph")
    return 1 if errors or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
