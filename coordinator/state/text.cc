#include "coordinator/state/text.h"

#include <cstddef>

#include "base/printable.h"

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
  return Printable(text, 1000);
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
