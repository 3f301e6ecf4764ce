#include "base/printable.h"

#include <gtest/gtest.h>

namespace longhaul {
namespace {

TEST(PrintableTest, KeepsTextOfAllLanguages) {
  const std::string text =
      "Gr\xc3\xbc\xc3\x9f"
      "e, \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x9a\x82";
  EXPECT_EQ(Printable(text), text);
}

TEST(PrintableTest, TakesAwayWhatSteersATerminal) {
  EXPECT_EQ(Printable("a\x1b[31mb\x07\x7f"), "a?[31mb??");
  EXPECT_EQ(Printable("a\tb\r\nc"), "a b  c");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "??31m");  // U+009B
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a???b");  // U+202E, right to left
  EXPECT_EQ(Printable("a\xe2\x80\xa8"
                      "b"),
            "a???b");  // U+2028, the end of a line
  EXPECT_EQ(Printable("\xff\xc3"), "??");
  EXPECT_EQ(Printable("\xc0\x8a\xe0\x80\x8a"), "?????");  // '\n' in more bytes than it needs
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a?b");
}

TEST(PrintableTest, CutsBetweenCharacters) {
  EXPECT_EQ(Printable("abc", 3), "abc");
  EXPECT_EQ(Printable("abcd", 3), "abc...");
  EXPECT_EQ(Printable("ab\xc3\xbc", 3), "ab...");
}

TEST(PrintableTest, KeepsLinesWhereAskedTo) {
  EXPECT_EQ(PrintableLines("a\n\x1b\n"), "a\n?\n");
}

}  // namespace
}  // namespace longhaul
