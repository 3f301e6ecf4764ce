#include "coordinator/state/text.h"

#include <cstddef>

namespace longhaul::coordinator {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// The digits at the start of `text`, without leading zeros; removed from it.
std::string_view TakeNumber(std::string_view* text) {
  size_t end = 0;
  while (end < text->size() && IsDigit((*text)[end])) ++end;
  size_t start = 0;
  while (start + 1 < end && (*text)[start] == '0') ++start;
  const std::string_view number = text->substr(start, end - start);
  text->remove_prefix(end);
  return number;
}

}  // namespace

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 1000;
  std::string line(text.substr(0, kMost));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  // A character of several bytes is not cut in two: protobuf takes whole UTF-8 only.
  if (text.size() > kMost) {
    while (!line.empty() && (static_cast<unsigned char>(line.back()) & 0xC0) == 0x80)
      line.pop_back();
    if (!line.empty() && static_cast<unsigned char>(line.back()) >= 0xC0) line.pop_back();
    line += "...";
  }
  return line;
}

bool NaturalLess(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (IsDigit(a[0]) && IsDigit(b[0])) {
      const std::string_view x = TakeNumber(&a), y = TakeNumber(&b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[0] != b[0]) return a[0] < b[0];
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // "w01" and "w1"
}

}  // namespace longhaul::coordinator
