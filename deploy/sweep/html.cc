#include "deploy/sweep/html.h"

#include <fmt/core.h>

#include <cmath>

#include "absl/time/time.h"
#include "base/check.h"
#include "base/printable.h"
#include "base/units.h"

namespace longhaul::cli {

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : PrintableLines(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

void HtmlTable::AddRow(std::vector<std::string> cells) {
  LH_CHECK(cells.size() == columns_.size(), "a row has a cell a column");
  rows_.push_back(std::move(cells));
}

std::string HtmlTable::ToHtml(std::string_view caption) const {
  std::string out = fmt::format(
      "<p class=\"caption\">{0}</p><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{0}\"><table><thead><tr>",
      EscapeHtml(caption));
  for (const Column& column : columns_) {
    out += fmt::format("<th scope=\"col\"{}>{}</th>", column.number ? " class=\"n\"" : "",
                       column.title);
  }
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows_) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const char* const tag = i == 0 ? "th scope=\"row\"" : "td";
      const char* const kind = columns_[i].number  ? " class=\"n\""
                               : columns_[i].prose ? " class=\"w\""
                                                   : "";
      out += fmt::format("<{}{}>{}</{}>", tag, kind, row[i].empty() ? "–" : row[i],
                         i == 0 ? "th" : "td");
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string WholeText(double value) {
  if (!std::isfinite(value)) return "";
  const std::string digits = fmt::format("{:.0f}", value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string TimeSpanText(double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0) return "";
  return longhaul::FormatDuration(absl::Seconds(seconds));
}

std::string RateLabel(double bits_per_second) {
  return bits_per_second > 0 ? FormatBitsPerSecond(bits_per_second) : "not shaped";
}

std::string PerCentText(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "";
}

}  // namespace longhaul::cli
