// `longhaul keys`.
#include <string>

#include "cli/program.h"
#include "run/file/key_reference.h"

namespace longhaul::cli {

void AddKeysCommand(Program& program) {
  program.AddCommand(
      "keys",
      "Print every key of a run file with its type, its default and what a change affects, as a "
      "page in Markdown; with --json a JSON Schema for editors",
      [](Invocation& invocation) -> StatusOr<int> {
        invocation.terminal().out << (invocation.json() ? config::KeySchema() : config::KeyPage());
        return kDone;
      });
}

}  // namespace longhaul::cli
