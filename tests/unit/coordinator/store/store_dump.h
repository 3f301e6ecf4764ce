// All rows of a store, and the order of its runs, as text that equals another's where the stores
// do.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

inline std::vector<std::string> Column(sqlite::Database& database, const std::string& sql) {
  std::vector<std::string> values;
  auto rows = database.Prepare(sql);
  EXPECT_TRUE(rows.ok()) << rows.status();
  while (rows.ok() && rows->Next().value()) values.emplace_back(rows->Bytes(0));
  return values;
}

inline std::string DumpStore(const std::string& path, std::string_view left_out = {}) {
  auto database = sqlite::Database::Open(path, SQLITE_OPEN_READWRITE).value();
  std::string dump;
  for (const std::string& table :
       Column(database, "SELECT name FROM sqlite_schema WHERE type='table' ORDER BY name")) {
    if (table == left_out) continue;
    std::string columns;
    for (const std::string& name :
         Column(database, fmt::format("SELECT name FROM pragma_table_info('{}')", table))) {
      columns += fmt::format("{}quote({})", columns.empty() ? "" : " || ',' || ", name);
    }
    if (table == "runs") columns.insert(0, "rowid || ':' || ");
    dump += table + "\n";
    for (const std::string& row :
         Column(database, fmt::format("SELECT {} FROM {} ORDER BY 1", columns, table))) {
      dump += "  " + row + "\n";
    }
  }
  return dump;
}

}  // namespace longhaul::coordinator
