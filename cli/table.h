// A table for people: aligned columns on a terminal, tab-separated cells in a pipe.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"

namespace longhaul::cli {

struct TableCell {
  TableCell(std::string cell_text,
            Style cell_style = Style::kPlain)  // NOLINT: cells are mostly text
      : text(std::move(cell_text)), style(cell_style) {}
  std::string text;
  Style style;
};

enum class Align { kLeft, kRight };
struct Column {
  std::string title;
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // `cells`: one for each column. Texts are made printable; "" shows as "-".
  void AddRow(std::vector<TableCell> cells);
  bool empty() const { return rows_.empty(); }

  // Returns the lines of the aligned table, titles first, at most `width` columns wide. Longer
  // lines are cut. 0: unlimited.
  std::vector<std::string> Lines(int width, bool colour) const;
  // Returns titles and rows, cells separated by tabs.
  std::string Plain() const;
  // Prints Lines on a terminal, else Plain.
  void Print(const Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<TableCell>> rows_;
};

}  // namespace longhaul::cli
