#include "codec/tool/npy.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "codec/blob.h"

namespace longhaul::codec {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kLongestHeader = 65536;

Status Bad(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

// The dictionary in the header is Python source: {'descr': '<f4', 'fortran_order': False, 'shape':
// (2, 3), }. This reads such dictionaries and no other Python.
class DictionaryReader {
 public:
  explicit DictionaryReader(std::string_view text) : text_(text) {}

  Status Read() {
    LH_RETURN_IF_ERROR(Expect('{'));
    while (!Accept('}')) {
      LH_ASSIGN_OR_RETURN(const std::string key, String());
      LH_RETURN_IF_ERROR(Expect(':'));
      LH_RETURN_IF_ERROR(Value(key));
      if (!Accept(',')) {
        LH_RETURN_IF_ERROR(Expect('}'));
        break;
      }
    }
    SkipSpaces();
    if (place_ != text_.size()) return Malformed();
    if (seen_ != 7) return Bad("the .npy header must have descr, fortran_order and shape");
    return absl::OkStatus();
  }

  std::string descr;
  bool fortran_order = false;
  std::vector<uint64_t> dimensions;

 private:
  Status Malformed() const {
    return Bad(fmt::format("the .npy header is malformed at character {}", place_));
  }
  void SkipSpaces() {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\n')) ++place_;
  }
  bool Accept(char c) {
    SkipSpaces();
    if (place_ >= text_.size() || text_[place_] != c) return false;
    ++place_;
    return true;
  }
  Status Expect(char c) { return Accept(c) ? absl::OkStatus() : Malformed(); }
  bool AcceptWord(std::string_view word) {
    SkipSpaces();
    if (text_.substr(place_, word.size()) != word) return false;
    place_ += word.size();
    return true;
  }

  StatusOr<std::string> String() {
    SkipSpaces();
    if (place_ >= text_.size() || (text_[place_] != '\'' && text_[place_] != '"')) {
      return Malformed();
    }
    const char quote = text_[place_];
    const size_t end = text_.find(quote, place_ + 1);
    if (end == std::string_view::npos) return Malformed();
    std::string result(text_.substr(place_ + 1, end - place_ - 1));
    place_ = end + 1;
    return result;
  }

  // Every key once.
  Status Mark(unsigned bit) {
    if ((seen_ & bit) != 0) return Malformed();
    seen_ |= bit;
    return absl::OkStatus();
  }

  Status Value(std::string_view key) {
    if (key == "descr") {
      LH_RETURN_IF_ERROR(Mark(1));
      SkipSpaces();
      if (place_ < text_.size() && text_[place_] == '[') {
        return Bad("the .npy file has records; expected fp32 ('<f4') or fp16 ('<f2')");
      }
      LH_ASSIGN_OR_RETURN(descr, String());
      return absl::OkStatus();
    }
    if (key == "fortran_order") {
      LH_RETURN_IF_ERROR(Mark(2));
      fortran_order = AcceptWord("True");
      return fortran_order || AcceptWord("False") ? absl::OkStatus() : Malformed();
    }
    if (key == "shape") {
      LH_RETURN_IF_ERROR(Mark(4));
      return Dimensions();
    }
    return Malformed();
  }

  Status Dimensions() {
    LH_RETURN_IF_ERROR(Expect('('));
    while (!Accept(')')) {
      if (dimensions.size() == 3) return Bad("the .npy array must have 1 to 3 dimensions");
      SkipSpaces();
      uint64_t value = 0;
      const char* begin = text_.data() + place_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
      if (error != std::errc()) return Malformed();
      place_ += static_cast<size_t>(end - begin);
      dimensions.push_back(value);
      if (!Accept(',')) {
        LH_RETURN_IF_ERROR(Expect(')'));
        break;
      }
    }
    return absl::OkStatus();
  }

  std::string_view text_;
  size_t place_ = 0;
  unsigned seen_ = 0;
};

StatusOr<Dtype> DtypeOf(const std::string& descr, bool bf16) {
  if (bf16) {
    if (descr == "<u2") return Dtype::kBf16;
    return Bad(fmt::format("the .npy file has '{}'; bf16 is read from uint16 ('<u2')", descr));
  }
  if (descr == "<f4") return Dtype::kF32;
  if (descr == "<f2") return Dtype::kF16;
  return Bad(fmt::format("the .npy file has '{}'; expected fp32 ('<f4') or fp16 ('<f2'){}", descr,
                         descr == "<u2" ? " (--dtype bf16 reads uint16 as bf16)" : ""));
}

StatusOr<Shape> ShapeOf(const std::vector<uint64_t>& dimensions) {
  if (dimensions.empty()) return Bad("the .npy array must have 1 to 3 dimensions; it is a scalar");
  uint32_t sizes[3] = {1, 1, 1};
  const size_t missing = 3 - dimensions.size();
  for (size_t k = 0; k < dimensions.size(); ++k) {
    if (dimensions[k] > kMaxElements - 1) {
      return Bad(fmt::format("a dimension of {} in the .npy file is too large", dimensions[k]));
    }
    sizes[missing + k] = static_cast<uint32_t>(dimensions[k]);
  }
  const Shape shape{sizes[0], sizes[1], sizes[2]};
  LH_RETURN_IF_ERROR(CheckShape(shape));
  return shape;
}

// Where the dictionary is in the file.
StatusOr<std::string_view> FindDictionary(std::string_view text) {
  if (!text.starts_with(kMagic) || text.size() < 10) {
    return Bad("not a .npy file: it does not start with '\\x93NUMPY'");
  }
  const auto byte = [&](size_t place) { return size_t{static_cast<unsigned char>(text[place])}; };
  const size_t major = byte(6);
  if (major < 1 || major > 3) {
    return Bad(fmt::format("the .npy file has version {}; 1 to 3 are read", major));
  }
  const size_t start = major == 1 ? 10 : 12;
  if (text.size() < start) return Bad("the .npy file ends within its header");
  size_t length = byte(8) | (byte(9) << 8);
  if (major > 1) length |= (byte(10) << 16) | (byte(11) << 24);
  if (length > kLongestHeader || length > text.size() - start) {
    return Bad(fmt::format("the .npy file announces a header of {} bytes; {} bytes follow", length,
                           text.size() - start));
  }
  return text.substr(start, length);
}

}  // namespace

StatusOr<NpyArray> MakeArray(Dtype dtype, const Shape& shape) {
  LH_RETURN_IF_ERROR(CheckShape(shape));
  NpyArray array;
  array.dtype = dtype;
  array.shape = shape;
  array.data = AlignedBuffer(shape.elements() * BytesPerElement(dtype));
  return array;
}

StatusOr<NpyArray> ParseNpy(std::span<const std::byte> file, bool bf16) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  LH_ASSIGN_OR_RETURN(const std::string_view dictionary, FindDictionary(text));
  DictionaryReader reader(dictionary);
  LH_RETURN_IF_ERROR(reader.Read());
  if (reader.fortran_order) {
    return Bad("the .npy array is in Fortran order; save it with numpy.ascontiguousarray");
  }
  LH_ASSIGN_OR_RETURN(const Dtype dtype, DtypeOf(reader.descr, bf16));
  LH_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(reader.dimensions));
  // Before anything is allocated for it.
  const auto start = static_cast<size_t>(dictionary.data() + dictionary.size() - text.data());
  const uint64_t expected = shape.elements() * BytesPerElement(dtype);
  if (file.size() - start != expected) {
    return Bad(fmt::format("the .npy array has {} bytes by its header; {} bytes follow it",
                           expected, file.size() - start));
  }
  LH_ASSIGN_OR_RETURN(NpyArray array, MakeArray(dtype, shape));
  if (expected > 0) std::memcpy(array.data.span().data(), file.data() + start, expected);
  return array;
}

std::string FormatNpy(const TensorView& tensor) {
  const std::string_view descr = tensor.dtype == Dtype::kF32   ? "<f4"
                                 : tensor.dtype == Dtype::kF16 ? "<f2"
                                                               : "<u2";
  std::string dictionary =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}, {}), }}", descr,
                  tensor.shape.samples, tensor.shape.tokens, tensor.shape.channels);
  // The data starts at a multiple of 64; a newline ends the header.
  dictionary.append(63 - (10 + dictionary.size()) % 64, ' ');
  dictionary += '\n';
  std::string file(kMagic);
  file += '\x01';
  file += '\x00';
  file += static_cast<char>(dictionary.size() & 0xff);
  file += static_cast<char>(dictionary.size() >> 8);
  file += dictionary;
  if (tensor.size_bytes() > 0) {
    file.append(static_cast<const char*>(tensor.data), tensor.size_bytes());
  }
  return file;
}

}  // namespace longhaul::codec
