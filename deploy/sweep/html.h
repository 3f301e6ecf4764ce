// Pieces of HTML, and numbers as a report shows them. Pure.
#ifndef LONGHAUL_DEPLOY_SWEEP_HTML_H_
#define LONGHAUL_DEPLOY_SWEEP_HTML_H_

#include <string>
#include <string_view>
#include <vector>

namespace longhaul::cli {

// Escapes text for HTML, also inside a quoted attribute, and makes it printable.
std::string EscapeHtml(std::string_view text);

// A table with headings. A table wider than the screen scrolls by itself. Cells are HTML.
class HtmlTable {
 public:
  struct Column {
    std::string title;    // HTML
    bool number = false;  // to the right
    bool prose = false;   // sentences: wrapped
  };
  explicit HtmlTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as columns. The first one heads the row.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  std::string ToHtml(std::string_view caption) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string WholeText(double value);            // "12,345"
std::string TimeSpanText(double seconds);       // "1.35 s"; "" for 0
std::string RateLabel(double bits_per_second);  // "100 Mbit/s"; 0 is "not shaped"
std::string PerCentText(double share);          // "12.3 %"

}  // namespace longhaul::cli

#endif  // LONGHAUL_DEPLOY_SWEEP_HTML_H_
