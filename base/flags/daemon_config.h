// Daemons' flags in a file: `--config FILE`, a YAML mapping whose keys are the long names of the
// program's flags.
//
//   coordinator: 192.0.2.1:7070        # --coordinator; of several [192.0.2.1:7070, 192.0.2.2:7070]
//   advertise: [192.0.2.7:7171]        # --advertise, repeatable
//   log-level: debug                   # --log-level
//
// Flags on the command line win. Unknown keys and values that a flag would refuse are errors with
// file, line and column, all at once: CLI::ConfigError, which exits as for any wrong usage.
#pragma once

// Only declared here: files that add options include <CLI/CLI.hpp>, which takes seconds to compile.
namespace CLI {
class App;
}

namespace longhaul {

// Call after all other options were added; `app` is the top-level application (no subcommands).
void AddYamlConfig(CLI::App& app);

}  // namespace longhaul
