#include "base/printable.h"

#include <algorithm>

namespace longhaul {
namespace {

constexpr std::string_view kBlanks = "\t\n\r";

// Bytes of the printable UTF-8 character at the front; 0 for anything else.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // More bytes than the character needs, half of a pair of UTF-16, and beyond the last character.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) >= 0xA0) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) >= 0x90) return 0;
  // U+0080 to U+009F are control characters too.
  if (first == 0xC2 && byte(1) < 0xA0) return 0;
  // U+2028 to U+202E and U+2066 to U+2069: line ends and directions of writing.
  if (first == 0xE2 && byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE) return 0;
  if (first == 0xE2 && byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9) return 0;
  return length;
}

}  // namespace

std::string Printable(std::string_view text, size_t limit) {
  std::string out;
  out.reserve(std::min(text.size(), limit));
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (out.size() + std::max<size_t>(bytes, 1) > limit) return out + "...";
    if (bytes == 0) {
      out.push_back(kBlanks.find(text[0]) != kBlanks.npos ? ' ' : '?');
      text.remove_prefix(1);
    } else {
      out.append(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
  }
  return out;
}

std::string PrintableLines(std::string_view text) {
  std::string out;
  while (true) {
    const size_t end = text.find('\n');
    out += Printable(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out.push_back('\n');
    text.remove_prefix(end + 1);
  }
}

}  // namespace longhaul
