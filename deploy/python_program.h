// Runs the parts of longhaul that are Python programs: `data` (with `generate`), `sweep`, the
// trackers of `steps`, and codecs of a worker that are classes of Python. The running program finds
// the Python sources and a Python interpreter, and replaces itself by the interpreter or starts it
// (deploy/steps).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace longhaul {

struct PythonPart {
  std::string name;      // the subcommand, and the folder of the sources: "data"
  std::string needs;     // the end of "expected a Python that has ": "numpy and tokenizers"
  std::string check;     // a Python statement that fails if `needs` are missing: "import numpy"
  std::string packages;  // the flag of deploy/setup.sh that installs `needs`; "": no packages
};

// Where to search. `python` and `sources` are the values of environment variables; empty: not set.
struct PythonSearch {
  std::filesystem::path program;  // the running program's file
  std::string python;             // LONGHAUL_PYTHON
  std::string sources;            // LONGHAUL_DATA_SOURCES, with the part's name for DATA
  // Returns the reason why the interpreter `python` cannot run the sources; "": it can. May start
  // processes.
  std::function<std::string(const std::string& python)> lacks;
};

struct PythonProgram {
  std::string python;          // the interpreter
  std::filesystem::path main;  // the path of main.py
};

// Finds the sources: in the folder `search.sources`, if set. Else in ../share/longhaul/NAME,
// relative to the program's folder, else in deploy/NAME of a folder above the program. Finds an
// interpreter for which `search.lacks` returns "": only `search.python`, if set. Else first tries
// .deps/venv of the checkout or of the installation, then python3 of PATH. kFailedPrecondition: the
// sources or an interpreter are missing; the message lists the tried paths and how to install them.
StatusOr<PythonProgram> FindPythonProgram(const PythonPart& part, const PythonSearch& search);

// Codecs that are classes of Python (codec/python/host.h).
PythonPart PythonCodecPart();

// The same for this process: its file, its environment, and `part.check` run by each interpreter.
StatusOr<PythonProgram> FindPythonProgram(const PythonPart& part);

// Finds the program and replaces this process by it, with these arguments. `input` becomes the
// program's standard input; nullopt: the program inherits the standard input. Returns only on an
// error: that of FindPythonProgram, or by errno. Call it from the main thread.
Status RunPythonProgram(const PythonPart& part, const std::vector<std::string>& arguments,
                        const std::optional<std::string>& input = std::nullopt);

}  // namespace longhaul
