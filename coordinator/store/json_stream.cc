#include "coordinator/store/json_stream.h"

#include <array>
#include <optional>
#include <vector>

namespace longhaul::coordinator {
namespace {

constexpr size_t kPassedAtOnceBytes = 64 << 10;
constexpr size_t kMostScalarBytes = 64;
constexpr int kEnd = -1;

void AppendUtf8(uint32_t code, std::string* text) {
  const auto put = [&](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

std::optional<char> Unescaped(int character) {
  switch (character) {
    case '"':
    case '\\':
    case '/':
      return static_cast<char>(character);
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return std::nullopt;
  }
}

class JsonScanner {
 public:
  JsonScanner(std::istream& json, const JsonLimits& limits, JsonParts* parts)
      : json_(json), limits_(limits), parts_(parts) {}

  Status Read() {
    // Not by recursion: the depth is the sender's choice.
    bool wants_value = true;
    while (true) {
      if (wants_value) {
        LH_ASSIGN_OR_RETURN(wants_value, BeginValue());
        continue;
      }
      if (open_.empty()) break;
      LH_ASSIGN_OR_RETURN(wants_value, AfterValue());
    }
    SkipSpace();
    return Peek() == kEnd ? absl::OkStatus() : Wrong("the end");
  }

 private:
  Status Wrong(std::string_view expected) const {
    return InvalidArgument("not JSON at byte {}: expected {}", read_ - filled_ + at_, expected);
  }

  int Peek() {
    if (at_ == filled_) {
      json_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
      filled_ = static_cast<size_t>(json_.gcount());
      read_ += filled_;
      at_ = 0;
      if (filled_ == 0) return kEnd;
    }
    return static_cast<unsigned char>(buffer_[at_]);
  }
  int Take() {
    const int character = Peek();
    if (character != kEnd) ++at_;
    return character;
  }
  void SkipSpace() {
    while (Peek() == ' ' || Peek() == '\t' || Peek() == '\n' || Peek() == '\r') ++at_;
  }

  // True: a value comes next, the first of what has begun.
  StatusOr<bool> BeginValue() {
    SkipSpace();
    if (++values_ > limits_.values) {
      return InvalidArgument("it has more than {} values", limits_.values);
    }
    const int first = Peek();
    if (first == '"') {
      ++at_;
      LH_RETURN_IF_ERROR(ReadText(/*key=*/false));
      return false;
    }
    if (first != '[' && first != '{') {
      LH_RETURN_IF_ERROR(ReadScalar());
      return false;
    }
    ++at_;
    if (open_.size() >= limits_.depth) {
      return InvalidArgument("it has more than {} arrays and objects within each other",
                             limits_.depth);
    }
    const bool array = first == '[';
    open_.push_back(array);
    LH_RETURN_IF_ERROR(parts_->OnBegin(array));
    SkipSpace();
    if (Peek() == (array ? ']' : '}')) {
      LH_RETURN_IF_ERROR(Close());
      return false;
    }
    if (!array) LH_RETURN_IF_ERROR(ReadKey());
    return true;
  }

  // True: a value comes next, the following one of the innermost array or object.
  StatusOr<bool> AfterValue() {
    SkipSpace();
    const bool array = open_.back();
    const int next = Peek();
    if (next == (array ? ']' : '}')) {
      LH_RETURN_IF_ERROR(Close());
      return false;
    }
    if (next != ',') return Wrong(array ? "',' or ']'" : "',' or '}'");
    ++at_;
    if (!array) LH_RETURN_IF_ERROR(ReadKey());
    return true;
  }

  Status Close() {
    ++at_;
    open_.pop_back();
    return parts_->OnEnd();
  }

  Status ReadKey() {
    SkipSpace();
    if (Take() != '"') return Wrong("a key");
    LH_RETURN_IF_ERROR(ReadText(/*key=*/true));
    SkipSpace();
    return Take() == ':' ? absl::OkStatus() : Wrong("':'");
  }

  Status ReadScalar() {
    size_t bytes = 0;
    const auto goes_on = [&](int c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' ||
             c == 'E';
    };
    while (goes_on(Peek()) && bytes <= kMostScalarBytes) {
      ++at_;
      ++bytes;
    }
    if (bytes == 0 || bytes > kMostScalarBytes) return Wrong("a value");
    return parts_->OnScalar();
  }

  // Behind its first quotation mark.
  Status ReadText(bool key) {
    text_.clear();
    while (true) {
      const int next = Take();
      if (next == kEnd || next < 0x20) return Wrong("the end of a text");
      if (next == '"') return key ? parts_->OnKey(text_) : parts_->OnText(text_, /*last=*/true);
      if (next == '\\') {
        LH_RETURN_IF_ERROR(ReadEscape());
      } else {
        text_.push_back(static_cast<char>(next));
      }
      if (key && text_.size() > kMostKeyBytes) return Wrong("a shorter key");
      if (!key && text_.size() >= kPassedAtOnceBytes) {
        LH_RETURN_IF_ERROR(parts_->OnText(text_, /*last=*/false));
        text_.clear();
      }
    }
  }

  StatusOr<uint32_t> ReadUnit() {
    uint32_t unit = 0;
    for (int i = 0; i < 4; ++i) {
      const int digit = Take();
      unit <<= 4;
      if (digit >= '0' && digit <= '9') {
        unit |= static_cast<uint32_t>(digit - '0');
      } else if (digit >= 'a' && digit <= 'f') {
        unit |= static_cast<uint32_t>(digit - 'a' + 10);
      } else if (digit >= 'A' && digit <= 'F') {
        unit |= static_cast<uint32_t>(digit - 'A' + 10);
      } else {
        return Wrong("four hexadecimal digits");
      }
    }
    return unit;
  }

  // Behind the backslash.
  Status ReadEscape() {
    const int kind = Take();
    if (const std::optional<char> plain = Unescaped(kind)) {
      text_.push_back(*plain);
      return absl::OkStatus();
    }
    if (kind != 'u') return Wrong("an escape");
    LH_ASSIGN_OR_RETURN(uint32_t code, ReadUnit());
    if (code >= 0xd800 && code < 0xdc00) {
      if (Take() != '\\' || Take() != 'u') return Wrong("the second half of a pair");
      LH_ASSIGN_OR_RETURN(const uint32_t low, ReadUnit());
      if (low < 0xdc00 || low >= 0xe000) return Wrong("the second half of a pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      return Wrong("the first half of a pair");
    }
    AppendUtf8(code, &text_);
    return absl::OkStatus();
  }

  std::istream& json_;
  const JsonLimits limits_;
  JsonParts* const parts_;
  std::array<char, kPassedAtOnceBytes> buffer_{};
  size_t at_ = 0, filled_ = 0, read_ = 0;
  std::vector<bool> open_;  // true: an array
  size_t values_ = 0;
  std::string text_;
};

}  // namespace

Status ReadJson(std::istream& json, const JsonLimits& limits, JsonParts* parts) {
  return JsonScanner(json, limits, parts).Read();
}

}  // namespace longhaul::coordinator
