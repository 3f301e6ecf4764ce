// Runs the parts of `longhaul` that are Python programs: `data` (with `generate`) and `sweep`. This
// program finds the sources and a Python, and replaces itself by that Python.
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
  std::string check;     // a statement that fails in a Python without `needs`
  std::string packages;  // the flag of deploy/setup.sh that installs them; "": no packages
};

// Where to search. `python` and `sources` are the values of variables; empty: not set.
struct PythonSearch {
  std::filesystem::path program;  // the running program's file
  std::string python;             // LONGHAUL_PYTHON
  std::string sources;            // LONGHAUL_DATA_SOURCES; the part's name is in the middle
  // Returns what keeps a Python from running the sources; "": nothing. It may start processes.
  std::function<std::string(const std::string& python)> lacks;
};

struct PythonProgram {
  std::string python;
  std::filesystem::path main;  // main.py
};

// Finds the sources: in the folder `search.sources`, if set. Else in ../share/longhaul/NAME,
// relative to the program's folder, else in deploy/NAME of a folder above the program. Finds a
// Python that lacks nothing: only `search.python`, if set. Else first tries .deps/venv of the
// checkout or of the installation, then python3 of PATH. kFailedPrecondition names what was tried
// and how to install what is missing.
StatusOr<PythonProgram> FindPythonProgram(const PythonPart& part, const PythonSearch& search);

// Finds the program and replaces this process by it, with these arguments. `input`, if given,
// becomes its standard input. Returns only if this fails.
Status RunPythonProgram(const PythonPart& part, const std::vector<std::string>& arguments,
                        const std::optional<std::string>& input = std::nullopt);

}  // namespace longhaul
