#include "coordinator/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

namespace longhaul::cli {
namespace {

bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Bytes of the printable UTF-8 character at the front; 0 for anything else.
size_t CharacterBytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!IsContinuation(text[i])) return 0;
  }
  // U+0080 to U+009F are control characters too.
  if (first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0) return 0;
  return length;
}

}  // namespace

Terminal ProcessTerminal() {
  const char* term = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  Terminal terminal{std::cout, std::cerr};
  terminal.out_is_terminal = isatty(STDOUT_FILENO) == 1 && !dumb;
  terminal.err_is_terminal = isatty(STDERR_FILENO) == 1 && !dumb;
  terminal.colour = terminal.out_is_terminal && (no_colour == nullptr || *no_colour == '\0');
  terminal.size = [] {
    winsize size{};
    WindowSize window;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
      window = {size.ws_col, size.ws_row};
    }
    return window;
  };
  return terminal;
}

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) {
      out.push_back(text[0] == '\t' ? ' ' : '?');
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

int Columns(std::string_view text) {
  int columns = 0;
  for (const char c : text) columns += IsContinuation(c) ? 0 : 1;
  return columns;
}

std::string Shortened(std::string_view text, int columns) {
  if (Columns(text) <= columns) return std::string(text);
  size_t end = 0;
  for (int taken = 0; end < text.size(); ++end) {
    if (!IsContinuation(text[end]) && ++taken > columns) break;
  }
  return std::string(text.substr(0, end));
}

std::string Styled(std::string_view text, Style style, bool colour) {
  if (!colour || style == Style::kPlain) return std::string(text);
  const char* code = "0";
  switch (style) {
    case Style::kBold:
      code = "1";
      break;
    case Style::kDim:
      code = "2";
      break;
    case Style::kRed:
      code = "31";
      break;
    case Style::kGreen:
      code = "32";
      break;
    case Style::kYellow:
      code = "33";
      break;
    case Style::kPlain:
      break;
  }
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

}  // namespace longhaul::cli
