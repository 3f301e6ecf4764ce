// Runs parts of `longhaul` that are Python programs (`data`, `sweep`). This program finds the
// sources and a Python, and replaces itself by that Python.
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
  std::string needs;     // for people, behind "a Python that has": "numpy and tokenizers"
  std::string check;     // a statement that fails in a Python that lacks them
  std::string packages;  // how to install them, behind deploy/setup.sh; "": no package is needed
};

// Locations to search. Empty: the variable is not set.
struct PythonSearch {
  std::filesystem::path program;  // the running program's file
  std::string python;             // LONGHAUL_PYTHON
  std::string sources;            // LONGHAUL_DATA_SOURCES, with the part's name
  // Returns what keeps a Python from running the sources; "": nothing. It may start processes.
  std::function<std::string(const std::string& python)> lacks;
};

struct PythonProgram {
  std::string python;
  std::filesystem::path main;  // main.py
};

// Finds the sources: of the variable, else ../share/longhaul/NAME beside the program's folder, else
// deploy/NAME of a folder that contains the program. Finds the Python: of the variable, else of the
// checkout's or the installation's .deps/venv, else python3 of PATH; the first that lacks nothing.
// kFailedPrecondition names the tried files and the command that installs the missing ones.
StatusOr<PythonProgram> FindPythonProgram(const PythonPart& part, const PythonSearch& search);

// Replaces this process by that Python, with these arguments and with `input`, if given, as
// standard input. Returns only if that fails.
Status RunPythonProgram(const PythonPart& part, const std::vector<std::string>& arguments,
                        const std::optional<std::string>& input = std::nullopt);

}  // namespace longhaul
