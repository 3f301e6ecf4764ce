// Any bytes as the file of --config: refused by the library's own exception, with a sentence, or
// taken.
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/flags/daemon_config.h"
#include "base/fuzz/memory_file.h"
#include "base/fuzz/target.h"

LH_FUZZ_TARGET(daemon_config) {
  static longhaul::fuzz::MemoryFile file;
  file.Set(data, size);
  std::string listen;
  std::vector<std::string> advertise;
  int limit = 0;
  bool dump = false;
  CLI::App app("A daemon.", "fuzz");
  app.add_option("--listen", listen);
  app.add_option("--advertise", advertise);
  app.add_option("--limit", limit)->check(CLI::Range(1, 9));
  app.add_flag("--dump", dump);
  longhaul::AddYamlConfig(app);
  try {
    app.parse(std::vector<std::string>{file.path(), "--config"});  // the last argument comes first
  } catch (const CLI::ParseError& error) {
    if (std::string(error.what()).empty()) std::abort();
    return false;
  }
  if (limit != 0 && (limit < 1 || limit > 9)) std::abort();
  return true;
}
