// The reference of run files, made of the rows of keys.h.
#ifndef LONGHAUL_RUN_FILE_KEY_REFERENCE_H_
#define LONGHAUL_RUN_FILE_KEY_REFERENCE_H_

#include <string>

namespace longhaul::config {

// The page docs/guide/run_file_keys.md: a table for each section.
std::string KeyPage();
// A JSON Schema that editors check run files with.
std::string KeySchema();

}  // namespace longhaul::config

#endif  // LONGHAUL_RUN_FILE_KEY_REFERENCE_H_
