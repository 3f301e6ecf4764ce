#include "run/tokens/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/pending_file.h"
#include "base/philox.h"
#include "base/unique_fd.h"

namespace longhaul {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::string_view kMagic = "LHTOKENS";

struct Header {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t bytes_per_token = 0;
  uint64_t tokens = 0;
  uint64_t validation_tokens = 0;
  uint32_t vocabulary = 0;
  std::array<char, 28> tokenizer{};
  std::array<char, 32> sha256{};
};
static_assert(sizeof(Header) == 96);

class BytesTokenizer final : public Tokenizer {
 public:
  uint32_t vocabulary() const override { return 256; }
  size_t PieceSize(std::string_view text, bool /*is_rest*/) const override {
    return std::min(text.size(), size_t{1} << 18);
  }
  void Encode(std::string_view text, std::vector<uint32_t>* tokens) const override {
    for (const char c : text) tokens->push_back(static_cast<unsigned char>(c));
  }
};

// All tokenizers: who adds one adds a row. A token file has 28 bytes for the name.
struct TokenizerKind {
  std::string_view name;
  std::unique_ptr<Tokenizer> (*create)();
};
constexpr std::array kTokenizers = {
    TokenizerKind{
        "bytes", []() -> std::unique_ptr<Tokenizer> { return std::make_unique<BytesTokenizer>(); }},
};

std::string_view TokenizerName(const Header& header) {
  const std::string_view field(header.tokenizer.data(), header.tokenizer.size());
  return field.substr(0, field.find('\0'));
}

// Appends tokens to a PendingFile behind its header, a piece at a time.
class TokenWriter {
 public:
  TokenWriter(PendingFile* file, uint32_t bytes_per_token)
      : file_(file), bytes_per_token_(bytes_per_token) {}

  Status Append(std::span<const uint32_t> tokens) {
    buffer_.resize(tokens.size() * bytes_per_token_);
    for (size_t i = 0; i < tokens.size(); ++i) {  // Little-endian: the low bytes come first.
      std::memcpy(buffer_.data() + i * bytes_per_token_, &tokens[i], bytes_per_token_);
    }
    hash_.Update(buffer_);
    LH_RETURN_IF_ERROR(file_->Append(buffer_));
    tokens_ += tokens.size();
    return absl::OkStatus();
  }
  uint64_t tokens() const { return tokens_; }
  // Once.
  std::string Sha256Bytes() { return absl::HexStringToBytes(hash_.HexDigest()); }

 private:
  PendingFile* const file_;
  const uint32_t bytes_per_token_;
  uint64_t tokens_ = 0;
  Sha256 hash_;
  std::vector<std::byte> buffer_;
};

// A text as it is read, a window at a time. Not mapped: a sector that cannot be read, or a file
// that is cut short meanwhile, must be an error and not a signal.
class TextReader {
 public:
  static StatusOr<TextReader> Open(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return FromErrno(fmt::format("cannot open {}", path), errno);
    return TextReader(path, std::move(file));
  }

  // What was read and not taken yet; empty at the end of the file, and after Open.
  std::string_view text() const { return std::string_view(buffer_).substr(taken_); }
  bool is_rest() const { return at_end_; }
  void Take(size_t bytes) { taken_ += bytes; }
  // Reads on behind text().
  Status ReadMore() {
    buffer_.erase(0, std::exchange(taken_, 0));
    const size_t before = buffer_.size();
    buffer_.resize(before + kWindowBytes);
    ssize_t count = 0;
    do {
      count = ::read(file_.get(), buffer_.data() + before, kWindowBytes);
    } while (count < 0 && errno == EINTR);
    buffer_.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) return FromErrno(fmt::format("cannot read {}", path_), errno);
    at_end_ = count == 0;
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kWindowBytes = size_t{4} << 20;
  TextReader(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  UniqueFd file_;
  std::string buffer_;
  size_t taken_ = 0;
  bool at_end_ = false;
};

Status AppendFile(const std::string& path, const Tokenizer& tokenizer, TokenWriter* writer) {
  std::error_code ignored;  // What cannot be looked at cannot be opened either.
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidArgument("expected a text file; {} is a folder", path);
  }
  LH_ASSIGN_OR_RETURN(TextReader reader, TextReader::Open(path));
  std::vector<uint32_t> tokens;
  while (true) {
    const std::string_view text = reader.text();
    const size_t piece = text.empty() ? 0 : tokenizer.PieceSize(text, reader.is_rest());
    if (piece == 0) {
      if (reader.is_rest()) return absl::OkStatus();
      LH_RETURN_IF_ERROR(reader.ReadMore());
      continue;
    }
    tokens.clear();
    tokenizer.Encode(text.substr(0, piece), &tokens);
    LH_RETURN_IF_ERROR(writer->Append(tokens));
    reader.Take(piece);
  }
}

Status CheckHeader(const Header& header, uint64_t file_bytes, const std::string& path) {
  const auto wrong = [&path](std::string_view problem) {
    return InvalidArgument("{} is not a token file: {}", path, problem);
  };
  if (std::string_view(header.magic.data(), header.magic.size()) != kMagic) {
    return wrong(fmt::format("it does not begin with {}", kMagic));
  }
  if (header.version != kTokenFileVersion) {
    return InvalidArgument("{} is a token file of version {}; this program reads version {}", path,
                           header.version, kTokenFileVersion);
  }
  if (header.bytes_per_token != 2 && header.bytes_per_token != 4) {
    return wrong(fmt::format("expected 2 or 4 bytes a token, came {}", header.bytes_per_token));
  }
  const uint64_t payload = file_bytes - sizeof(Header);
  if (payload % header.bytes_per_token != 0 || payload / header.bytes_per_token != header.tokens) {
    return wrong(fmt::format("it promises {} tokens of {} bytes, but {} bytes follow; it was cut",
                             header.tokens, header.bytes_per_token, payload));
  }
  if (header.validation_tokens > header.tokens) {
    return wrong(fmt::format("it has {} tokens, of which {} for validation", header.tokens,
                             header.validation_tokens));
  }
  if (header.vocabulary == 0 ||
      header.vocabulary > static_cast<uint32_t>(std::numeric_limits<int32_t>::max()) ||
      (header.bytes_per_token == 2 && header.vocabulary > 65536)) {
    return wrong(fmt::format("its vocabulary is {}", header.vocabulary));
  }
  return absl::OkStatus();
}

// An id beyond the vocabulary would index the embedding out of its range.
Status CheckIds(const Header& header, std::span<const std::byte> ids, const std::string& path) {
  for (uint64_t i = 0; i < header.tokens; ++i) {
    uint32_t id = 0;
    std::memcpy(&id, ids.data() + i * header.bytes_per_token, header.bytes_per_token);
    if (id >= header.vocabulary) {
      return InvalidArgument("{} is not a token file: token {} has the id {} of a vocabulary of {}",
                             path, i, id, header.vocabulary);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> Tokenizer::Names() {
  std::vector<std::string> names;
  for (const TokenizerKind& kind : kTokenizers) names.emplace_back(kind.name);
  return names;
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(std::string_view name) {
  for (const TokenizerKind& kind : kTokenizers) {
    if (kind.name == name) return kind.create();
  }
  return InvalidArgument("expected a tokenizer; came '{}'. Known: {}", name,
                         fmt::join(Names(), ", "));
}

StatusOr<TokenFileInfo> WriteTokenFile(const std::vector<std::string>& files,
                                       std::string_view tokenizer, double validation_share,
                                       const std::string& path) {
  if (!(validation_share >= 0 && validation_share < 1)) {
    return InvalidArgument("expected validation.share of 0 to below 1; came {}", validation_share);
  }
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> encoder, Tokenizer::Create(tokenizer));
  Header header;
  header.bytes_per_token = encoder->vocabulary() <= 65536 ? 2 : 4;
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<PendingFile> file, PendingFile::Create(path));
  LH_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(&header, 1))));
  TokenWriter writer(file.get(), header.bytes_per_token);
  for (const std::string& text : files) {
    LH_RETURN_IF_ERROR(AppendFile(text, *encoder, &writer));
  }

  TokenFileInfo info;
  info.tokens = writer.tokens();
  info.validation_tokens =
      static_cast<uint64_t>(static_cast<double>(info.tokens) * validation_share);
  info.vocabulary = encoder->vocabulary();
  info.tokenizer = std::string(tokenizer);
  LH_CHECK(tokenizer.size() <= header.tokenizer.size(), "tokenizer name {}", tokenizer);
  std::copy(kMagic.begin(), kMagic.end(), header.magic.begin());
  std::copy(tokenizer.begin(), tokenizer.end(), header.tokenizer.begin());
  const std::string hash = writer.Sha256Bytes();
  std::copy(hash.begin(), hash.end(), header.sha256.begin());
  header.version = kTokenFileVersion;
  header.tokens = info.tokens;
  header.validation_tokens = info.validation_tokens;
  header.vocabulary = info.vocabulary;
  LH_RETURN_IF_ERROR(file->Overwrite(0, std::as_bytes(std::span(&header, 1))));
  LH_RETURN_IF_ERROR(file->Publish());
  return info;
}

StatusOr<TokenFile> TokenFile::Open(const std::string& path, bool verify) {
  TokenFile result;
  LH_ASSIGN_OR_RETURN(result.file_, MappedFile::Open(path));
  const std::span<const std::byte> bytes = result.file_.bytes();
  if (bytes.size() < sizeof(Header)) {
    return InvalidArgument("{} is not a token file: it has {} bytes, fewer than a header's {}",
                           path, bytes.size(), sizeof(Header));
  }
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  LH_RETURN_IF_ERROR(CheckHeader(header, bytes.size(), path));
  if (verify) {
    Sha256 hash;
    hash.Update(bytes.subspan(sizeof(Header)));
    if (absl::HexStringToBytes(hash.HexDigest()) !=
        std::string(header.sha256.data(), header.sha256.size())) {
      return DataLoss(
          "{} is damaged: its tokens do not match the hash in its header; delete it so "
          "that it is made anew",
          path);
    }
    LH_RETURN_IF_ERROR(CheckIds(header, bytes.subspan(sizeof(Header)), path));
  }
  result.bytes_per_token_ = header.bytes_per_token;
  result.info_ = {header.tokens, header.validation_tokens, header.vocabulary,
                  std::string(TokenizerName(header))};
  return result;
}

uint64_t TokenFile::TrainingWindows(uint32_t context) const {
  return WindowsOf(info_.tokens - info_.validation_tokens, context);
}

uint64_t TokenFile::ValidationWindows(uint32_t context) const {
  return WindowsOf(info_.validation_tokens, context);
}

void TokenFile::ReadTrainingWindow(uint64_t window, uint32_t context, std::span<int32_t> inputs,
                                   std::span<int32_t> targets) const {
  LH_CHECK(window < TrainingWindows(context), "training window {} of {}", window,
           TrainingWindows(context));
  ReadAt(window * context, context, inputs, targets);
}

void TokenFile::ReadValidationWindow(uint64_t window, uint32_t context, std::span<int32_t> inputs,
                                     std::span<int32_t> targets) const {
  LH_CHECK(window < ValidationWindows(context), "validation window {} of {}", window,
           ValidationWindows(context));
  ReadAt(info_.tokens - info_.validation_tokens + window * context, context, inputs, targets);
}

void TokenFile::ReadAt(uint64_t first_token, uint32_t context, std::span<int32_t> inputs,
                       std::span<int32_t> targets) const {
  LH_CHECK(inputs.size() == context && targets.size() == context, "{} inputs, {} targets of {}",
           inputs.size(), targets.size(), context);
  const std::byte* from = file_.bytes().data() + sizeof(Header) + first_token * bytes_per_token_;
  for (size_t i = 0; i <= context; ++i) {
    uint32_t id = 0;
    std::memcpy(&id, from + i * bytes_per_token_, bytes_per_token_);
    if (i < context) inputs[i] = static_cast<int32_t>(id);
    if (i > 0) targets[i - 1] = static_cast<int32_t>(id);
  }
}

uint64_t WindowsOf(uint64_t tokens, uint32_t context) {
  return tokens == 0 || context == 0 ? 0 : (tokens - 1) / context;
}

uint64_t TrainingWindowOf(uint64_t seed, uint64_t k, uint64_t windows) {
  LH_CHECK(windows > 0, "no training windows");
  const uint64_t pass = k / windows;
  // A Feistel network permutes the numbers of 2 x half_bits bits, less than 4 x windows of them;
  // walking its cycle from a number below `windows` to the next such number permutes those.
  const int half_bits = std::max(1, (static_cast<int>(std::bit_width(windows - 1)) + 1) / 2);
  const uint64_t half_mask = (uint64_t{1} << half_bits) - 1;
  const Philox::Key key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint64_t x = k % windows;
  do {
    uint64_t left = x >> half_bits, right = x & half_mask;
    for (uint32_t round = 0; round < 6; ++round) {
      const uint64_t mixed =
          Philox::Generate({static_cast<uint32_t>(right), round, static_cast<uint32_t>(pass),
                            static_cast<uint32_t>(pass >> 32)},
                           key)[0];
      left = std::exchange(right, left ^ (mixed & half_mask));
    }
    x = left << half_bits | right;
  } while (x >= windows);
  return x;
}

}  // namespace longhaul
