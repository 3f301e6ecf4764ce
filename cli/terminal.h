// The output streams, and the terminal's capabilities.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>

#include "base/printable.h"

namespace longhaul::cli {

struct WindowSize {
  int columns = 80;
  int rows = 24;
};

// Results go to `out`, everything else to `err`. The streams must outlive the object. The booleans
// say what each stream can show; `size` returns the present size of the window.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool colour = false;
  std::function<WindowSize()> size = [] { return WindowSize{}; };
};

// Returns standard output and error of this process. A failed write to standard output throws
// std::ios_base::failure from then on. No color if the output is not a terminal,
// NO_COLOR is set or TERM is "dumb". A stream counts as no terminal if TERM is "dumb".
Terminal ProcessTerminal();

// Returns the number of columns of a printable text, counting one for each character.
int Columns(std::string_view text);
// Returns the first `columns` columns of `text`.
std::string Shortened(std::string_view text, int columns);

enum class Style { kPlain, kBold, kDim, kRed, kGreen, kYellow };
// Returns `text` with the terminal's codes for `style`; unchanged if `colour` is false.
std::string Styled(std::string_view text, Style style, bool colour);

}  // namespace longhaul::cli
