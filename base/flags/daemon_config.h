// Daemons' flags in a file: `--config FILE`, a YAML mapping whose keys are the long names of the
// program's flags.
//
//   coordinator: 192.0.2.1:7070        # --coordinator; several: [192.0.2.1:7070, 192.0.2.2:7070]
//   advertise: [192.0.2.7:7171]        # --advertise, repeatable
//   log-level: debug                   # --log-level
//
// A flag on the command line wins over the file. An unknown key, or a value that the flag refuses,
// is an error with file, line and column. app.parse() throws all errors at once, as one
// CLI::ConfigError.
#pragma once

// Only declared here: files that add options include <CLI/CLI.hpp>, which takes seconds to compile.
namespace CLI {
class App;
}

namespace longhaul {

// Adds --config to `app`, a program without subcommands. Call it after all other options were
// added.
void AddYamlConfig(CLI::App& app);

}  // namespace longhaul
