// Rows of measurements that a program keeps in a CSV file, with which later calls go on.
//
// A row's type has
//   static constexpr std::string_view kProgram = "...";            // whose rows they are
//   static std::string Header();                                   // with a newline at the end
//   static std::optional<Row> Parse(std::string_view line);        // nullopt: it is no row
// and a function ToCsv(row), with a newline at the end.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/file.h"
#include "base/status.h"

namespace longhaul::worker {

// Cells of a line of CSV. A cell in double quotes may have commas, and no quotes.
std::vector<std::string_view> CellsOf(std::string_view line);
// The cell as CSV has it: in double quotes if it has a comma. `cell` has no quotes.
std::string Quoted(const std::string& cell);
// False: the cell is not such a number.
template <class T>
bool ReadCell(std::string_view cell, T* value) {
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), *value);
  return error == std::errc() && end == cell.data() + cell.size();
}

double Mean(const std::vector<double>& values);
// "+0.12 (-0.03 to +0.27)": the mean, and its 95 % interval by Student's t; without the interval if
// there is one value, "" if there is none.
std::string MeanAndInterval(const std::vector<double>& values);

// Reads a file's text. kInvalidArgument names the line that is wrong.
template <class Row>
StatusOr<std::vector<Row>> ParseRows(std::string_view text) {
  const std::string header = Row::Header();
  if (!text.starts_with(header)) {
    return InvalidArgument("expected rows of {}, whose first line is {}", Row::kProgram,
                           header.substr(0, header.size() - 1));
  }
  text.remove_prefix(header.size());
  std::vector<Row> rows;
  for (size_t number = 2; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::optional<Row> row = Row::Parse(line);
    if (!row) return InvalidArgument("line {}: expected a row, got '{}'", number, line);
    rows.push_back(*row);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return rows;
}

// No rows if `path` is empty or there is no such file.
template <class Row>
StatusOr<std::vector<Row>> ReadKept(const std::string& path) {
  if (path.empty() || ::access(path.c_str(), F_OK) != 0) return std::vector<Row>();
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  auto rows = ParseRows<Row>(text);
  if (!rows.ok()) return InvalidArgument("{}: {}", path, Message(rows.status()));
  return rows;
}

// Writes the whole file; does nothing if `path` is empty.
template <class Row>
Status Keep(const std::vector<Row>& rows, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::string text = Row::Header();
  for (const Row& row : rows) text += ToCsv(row);
  return WriteFileAtomic(path, text);
}

// --limit: "8m"; empty: no limit. kInvalidArgument: not a time.
StatusOr<absl::Duration> ParseLimit(const std::string& text);

}  // namespace longhaul::worker
