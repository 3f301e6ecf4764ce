#include "cli/table.h"

#include <algorithm>

#include "base/check.h"

namespace longhaul::cli {
namespace {

constexpr int kGap = 2;

// A line that is being filled from the left and never exceeds its width.
class Line {
 public:
  Line(int width, bool colour) : room_(width), unlimited_(width <= 0), colour_(colour) {}

  void Add(std::string_view text, Style style) {
    const std::string shown = unlimited_ ? std::string(text) : Shortened(text, room_);
    room_ -= Columns(shown);
    if (!shown.empty()) text_ += Styled(shown, style, colour_);
  }
  void Pad(int columns) {
    if (columns > 0) Add(std::string(static_cast<size_t>(columns), ' '), Style::kPlain);
  }
  std::string Take() {
    while (text_.ends_with(' ')) text_.pop_back();
    return std::move(text_);
  }

 private:
  std::string text_;
  int room_;
  bool unlimited_;
  bool colour_;
};

}  // namespace

void Table::AddRow(std::vector<TableCell> cells) {
  LH_CHECK(cells.size() == columns_.size(), "a row has as many cells as the table has columns");
  for (TableCell& cell : cells) {
    cell.text = cell.text.empty() ? "-" : Printable(cell.text);
  }
  rows_.push_back(std::move(cells));
}

std::vector<std::string> Table::Lines(int width, bool colour) const {
  std::vector<int> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    int widest = Columns(columns_[i].title);
    for (const auto& row : rows_) widest = std::max(widest, Columns(row[i].text));
    widths.push_back(widest);
  }
  std::vector<std::string> lines;
  const auto add = [&](auto cell_at) {
    Line line(width, colour);
    for (size_t i = 0; i < columns_.size(); ++i) {
      const TableCell cell = cell_at(i);
      const int padding = widths[i] - Columns(cell.text);
      if (columns_[i].align == Align::kRight) line.Pad(padding);
      line.Add(cell.text, cell.style);
      if (columns_[i].align == Align::kLeft) line.Pad(padding);
      if (i + 1 < columns_.size()) line.Pad(kGap);
    }
    lines.push_back(line.Take());
  };
  add([&](size_t i) { return TableCell(columns_[i].title, Style::kBold); });
  for (const auto& row : rows_) add([&](size_t i) { return row[i]; });
  return lines;
}

std::string Table::Plain() const {
  std::string out;
  for (size_t i = 0; i < columns_.size(); ++i) out += (i > 0 ? "\t" : "") + columns_[i].title;
  out += '\n';
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) out += (i > 0 ? "\t" : "") + row[i].text;
    out += '\n';
  }
  return out;
}

void Table::Print(const Terminal& terminal) const {
  if (!terminal.out_is_terminal) {
    terminal.out << Plain();
    return;
  }
  for (const std::string& line : Lines(terminal.size().columns, terminal.colour)) {
    terminal.out << line << '\n';
  }
}

}  // namespace longhaul::cli
