#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "base/words.h"

namespace longhaul::cli {
namespace {

bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

}  // namespace

Terminal ProcessTerminal() {
  const char* term = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  // A command ends at the first write that fails (Program::Run).
  std::cout.exceptions(std::ios_base::badbit | std::ios_base::failbit);
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
  const std::string_view code = WordOf(style, {"0", "1", "2", "31", "32", "33"});
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

}  // namespace longhaul::cli
