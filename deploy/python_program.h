// Parts of `longhaul` that are Python programs (`data`, `sweep`). This program finds the sources
// and a Python, and becomes that Python.
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
  std::string check;     // a statement that fails where a Python lacks them
  std::string packages;  // how to install them, behind deploy/setup.sh; "": no package is needed
};

// Where to look. Empty: the variable is not set.
struct PythonSearch {
  std::filesystem::path program;  // this one's file
  std::string python;             // LONGHAUL_PYTHON
  std::string sources;            // LONGHAUL_DATA_SOURCES, with the part's name
  // What keeps a Python from running the sources; "" if nothing does. It may start processes.
  std::function<std::string(const std::string& python)> lacks;
};

struct PythonProgram {
  std::string python;
  std::filesystem::path main;  // main.py
};

// The sources: of the variable, else ../share/longhaul/NAME beside the program's folder, else
// deploy/NAME of a folder that the program is in. The Python: of the variable, else of the
// checkout's or the installation's .deps/venv, else python3 of PATH; the first that lacks nothing.
// kFailedPrecondition names what was tried and the command that brings what is missing.
StatusOr<PythonProgram> FindPythonProgram(const PythonPart& part, const PythonSearch& search);

// Becomes that Python, with these arguments and with `input`, if given, as standard input. Returns
// only if that fails.
Status RunPythonProgram(const PythonPart& part, const std::vector<std::string>& arguments,
                        const std::optional<std::string>& input = std::nullopt);

}  // namespace longhaul
