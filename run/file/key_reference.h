// Makes the reference of run files from the rows of keys.h. Pure; any thread.
#pragma once

#include <string>

namespace longhaul::config {

// The page docs/guide/run_file_keys.md: a table for each section.
std::string KeyPage();
// A JSON Schema that editors check run files with.
std::string KeySchema();

}  // namespace longhaul::config
