#include "run/tokens/token_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "tests/support/golden.h"

namespace longhaul {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenFileTest : public ::testing::Test {
 protected:
  TokenFileTest() : folder_(::testing::TempDir() + "longhaul-token-file-" + RandomUuid()) {
    EXPECT_TRUE(MakeDirectories(folder_).ok());
  }
  ~TokenFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Put(const std::string& name, std::string_view contents) const {
    const Status status = WriteFileAtomic(Path(name), contents);
    EXPECT_TRUE(status.ok()) << status;
    return Path(name);
  }
  // The bytes of a token file of ids 0, 1, 2... of which the last tenth is for validation.
  std::string GoodFile(size_t tokens) const {
    std::string text(tokens, '\0');
    for (size_t i = 0; i < tokens; ++i) text[i] = static_cast<char>(i);
    EXPECT_TRUE(WriteTokenFile({Put("text", text)}, "bytes", 0.1, Path("good")).ok());
    return ReadFile(Path("good")).value();
  }
  Status OpenError(std::string_view contents, bool verify = true) const {
    return TokenFile::Open(Put("foreign", contents), verify).status();
  }

 private:
  const std::string folder_;
};

TEST_F(TokenFileTest, HoldsTheBytesOfAllFilesInOrder) {
  const std::string a = Put("a", "Grüße"), b = Put("b", std::string("\0\xff", 2));
  const auto info = WriteTokenFile({a, b}, "bytes", 0.5, Path("tokens"));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->tokens, 9u);
  EXPECT_EQ(info->validation_tokens, 4u);
  EXPECT_EQ(info->vocabulary, 256u);

  const auto file = TokenFile::Open(Path("tokens"), /*verify=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->info().tokens, 9u);
  EXPECT_EQ(file->info().validation_tokens, 4u);
  EXPECT_EQ(file->info().tokenizer, "bytes");
  std::vector<int32_t> inputs(4), targets(4);
  file->ReadTrainingWindow(0, 4, inputs, targets);
  EXPECT_EQ(inputs, (std::vector<int32_t>{'G', 'r', 0xc3, 0xbc}));
  EXPECT_EQ(targets, (std::vector<int32_t>{'r', 0xc3, 0xbc, 0xc3}));
  inputs.resize(3), targets.resize(3);
  file->ReadValidationWindow(0, 3, inputs, targets);
  EXPECT_EQ(inputs, (std::vector<int32_t>{0x9f, 'e', 0}));
  EXPECT_EQ(targets, (std::vector<int32_t>{'e', 0, 0xff}));
}

TEST_F(TokenFileTest, GoldenBytes) {
  longhaul::testing::ExpectGolden(GOLDEN_DIR, "token_file", kTokenFileVersion, GoodFile(300));
}

TEST_F(TokenFileTest, FilesLargerThanOnePieceAreWhole) {
  std::string text(700'001, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 8);
  ASSERT_TRUE(WriteTokenFile({Put("large", text)}, "bytes", 0, Path("tokens")).ok());
  const auto file = TokenFile::Open(Path("tokens"), /*verify=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->TrainingWindows(1000), 700u);
  std::vector<int32_t> inputs(1000), targets(1000);
  for (uint64_t window = 0; window < 700; ++window) {
    file->ReadTrainingWindow(window, 1000, inputs, targets);
    for (size_t i = 0; i < 1000; ++i) {
      ASSERT_EQ(inputs[i], static_cast<unsigned char>(text[window * 1000 + i]));
      ASSERT_EQ(targets[i], static_cast<unsigned char>(text[window * 1000 + i + 1]));
    }
  }
}

TEST_F(TokenFileTest, FilesLargerThanWhatIsReadAtOnceAreWhole) {
  std::string text((size_t{9} << 20) + 7, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  const auto info = WriteTokenFile({Put("large", text)}, "bytes", 0, Path("tokens"));
  ASSERT_TRUE(info.ok()) << info.status();
  ASSERT_EQ(info->tokens, text.size());
  const auto file = TokenFile::Open(Path("tokens"), /*verify=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto context = static_cast<uint32_t>(text.size() - 1);
  std::vector<int32_t> inputs(context), targets(context);
  file->ReadTrainingWindow(0, context, inputs, targets);
  const bool same = std::equal(inputs.begin(), inputs.end(), text.begin(), [](int32_t id, char c) {
    return id == static_cast<unsigned char>(c);
  });
  EXPECT_TRUE(same);
  EXPECT_EQ(targets.back(), static_cast<unsigned char>(text.back()));
}

// As of a disk with a bad sector: the first page of a process's memory opens and cannot be read.
TEST_F(TokenFileTest, ATextThatCannotBeReadIsAnErrorThatNamesIt) {
  const auto info =
      WriteTokenFile({Put("good", "text"), "/proc/self/mem"}, "bytes", 0, Path("tokens"));
  ASSERT_FALSE(info.ok());
  EXPECT_THAT(std::string(Message(info.status())),
              AllOf(HasSubstr("cannot read /proc/self/mem"), HasSubstr("Input/output error")));
  EXPECT_FALSE(std::filesystem::exists(Path("tokens")));
}

TEST_F(TokenFileTest, CountsWindowsUpToTheLastToken) {
  GoodFile(100);  // 90 for training, 10 for validation
  const auto file = TokenFile::Open(Path("good"), /*verify=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->TrainingWindows(89), 1u);
  EXPECT_EQ(file->TrainingWindows(90), 0u);  // The target of the last input would be missing.
  EXPECT_EQ(file->TrainingWindows(44), 2u);
  EXPECT_EQ(file->TrainingWindows(0), 0u);
  EXPECT_EQ(file->ValidationWindows(9), 1u);
  EXPECT_EQ(file->ValidationWindows(10), 0u);
  std::vector<int32_t> inputs(9), targets(9);
  file->ReadValidationWindow(0, 9, inputs, targets);
  EXPECT_EQ(inputs.front(), 90);
  EXPECT_EQ(targets.back(), 99);
}

TEST_F(TokenFileTest, AWindowThatDoesNotExistIsADefect) {
  GoodFile(100);
  const auto file = TokenFile::Open(Path("good"), /*verify=*/false);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<int32_t> inputs(44), targets(44);
  EXPECT_DEATH(file->ReadTrainingWindow(2, 44, inputs, targets), "training window 2 of 2");
  EXPECT_DEATH(file->ReadValidationWindow(0, 44, inputs, targets), "validation window 0 of 0");
}

TEST_F(TokenFileTest, AnEmptyTextMakesAFileWithoutWindows) {
  ASSERT_TRUE(WriteTokenFile({Put("empty", "")}, "bytes", 0.05, Path("tokens")).ok());
  const auto file = TokenFile::Open(Path("tokens"), /*verify=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->TrainingWindows(1), 0u);
  EXPECT_EQ(file->ValidationWindows(1), 0u);
}

TEST_F(TokenFileTest, WritingNamesWhatItCannotRead) {
  const auto missing = WriteTokenFile({Path("nowhere")}, "bytes", 0, Path("tokens"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Message(missing.status())), HasSubstr("nowhere"));
  const auto folder = WriteTokenFile({Path("")}, "bytes", 0, Path("tokens"));
  EXPECT_THAT(std::string(Message(folder.status())), HasSubstr("is a folder"));
  const auto tokenizer = WriteTokenFile({}, "byte", 0, Path("tokens"));
  EXPECT_THAT(std::string(Message(tokenizer.status())), HasSubstr("'byte'. Known: bytes"));
  EXPECT_FALSE(WriteTokenFile({}, "bytes", 1.0, Path("tokens")).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("tokens")));
  EXPECT_TRUE(std::filesystem::is_empty(Path("")));  // No temporary file either.
}

TEST_F(TokenFileTest, EveryTruncationIsRefused) {
  const std::string good = GoodFile(50);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(OpenError(good.substr(0, size), /*verify=*/false).code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
  EXPECT_EQ(OpenError(good + "xy", /*verify=*/false).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(OpenError(good).ok());
}

TEST_F(TokenFileTest, EveryDamagedTokenIsDataLoss) {
  std::string bytes = GoodFile(50);
  for (size_t at = 64; at < bytes.size(); ++at) {  // The hash, then the tokens.
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    EXPECT_EQ(OpenError(bytes).code(), absl::StatusCode::kDataLoss) << at;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
  }
}

TEST_F(TokenFileTest, IdsBeyondTheVocabularyAreRefused) {
  std::string bytes = GoodFile(50);
  bytes[97] = 1;  // the first id becomes 256, of 256
  const std::string hash = absl::HexStringToBytes(Sha256Hex(bytes.substr(96)));
  bytes.replace(64, hash.size(), hash);
  const Status status = OpenError(bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("token 0 has the id 256"));
}

TEST_F(TokenFileTest, ImpossibleHeadersAreRefused) {
  const std::string good = GoodFile(50);
  const auto with = [&good](size_t offset, auto value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    return bytes;
  };
  EXPECT_THAT(std::string(Message(OpenError(with(0, 'l')))), HasSubstr("LHTOKENS"));
  EXPECT_THAT(std::string(Message(OpenError(with(8, uint32_t{2})))),
              HasSubstr("of version 2; this program reads version 1"));
  EXPECT_THAT(std::string(Message(OpenError(with(12, uint32_t{0})))), HasSubstr("bytes a token"));
  EXPECT_THAT(std::string(Message(OpenError(with(12, uint32_t{4})))), HasSubstr("it was cut"));
  // 2 x tokens wraps around to the right size.
  EXPECT_THAT(std::string(Message(OpenError(with(16, (uint64_t{1} << 63) + 50)))),
              HasSubstr("it was cut"));
  EXPECT_THAT(std::string(Message(OpenError(with(24, uint64_t{51})))), HasSubstr("validation"));
  EXPECT_THAT(std::string(Message(OpenError(with(32, uint32_t{0})))), HasSubstr("vocabulary"));
  EXPECT_THAT(std::string(Message(OpenError(with(32, uint32_t{65537})))), HasSubstr("vocabulary"));
}

TEST(TrainingWindowOf, EachPassIsAPermutation) {
  for (const uint64_t windows : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097}) {
    for (const uint64_t pass : {0, 1, 7}) {
      std::set<uint64_t> seen;
      for (uint64_t k = 0; k < windows; ++k) {
        seen.insert(TrainingWindowOf(/*seed=*/3, pass * windows + k, windows));
      }
      EXPECT_EQ(seen.size(), windows);
      EXPECT_EQ(*seen.rbegin(), windows - 1);
    }
  }
}

TEST(TrainingWindowOf, DependsOnSeedAndPassAndLooksRandom) {
  constexpr uint64_t kWindows = 1000;
  const auto order = [](uint64_t seed, uint64_t pass) {
    std::vector<uint64_t> result;
    for (uint64_t k = 0; k < kWindows; ++k) {
      result.push_back(TrainingWindowOf(seed, pass * kWindows + k, kWindows));
    }
    return result;
  };
  const std::vector<uint64_t> reference = order(1, 0);
  EXPECT_EQ(order(1, 0), reference);
  for (const auto& other : {order(2, 0), order(1, 1), order(uint64_t{1} << 32, 0)}) {
    size_t equal = 0;
    for (size_t i = 0; i < kWindows; ++i) equal += other[i] == reference[i] ? 1 : 0;
    EXPECT_LT(equal, 10u);  // 1 is expected of two random permutations.
  }
  // No run of neighbours, and no drift: the first half holds about half of the low windows.
  size_t neighbours = 0, low = 0;
  for (size_t i = 0; i + 1 < kWindows; ++i) {
    neighbours += reference[i + 1] == reference[i] + 1 ? 1 : 0;
    low += i < kWindows / 2 && reference[i] < kWindows / 2 ? 1 : 0;
  }
  EXPECT_LT(neighbours, 10u);
  EXPECT_NEAR(static_cast<double>(low), kWindows / 4.0, 50);
}

TEST(TrainingWindowOf, OrderIsFixedForever) {
  // A resumed run must go on in the order that an older build began.
  std::vector<uint64_t> order;
  for (uint64_t k = 0; k < 8; ++k) order.push_back(TrainingWindowOf(1, k, 100));
  EXPECT_EQ(order, (std::vector<uint64_t>{74, 81, 8, 20, 37, 34, 60, 83}));
}

TEST(TrainingWindowOf, WorksForEverySize) {
  for (const uint64_t windows : {uint64_t{1} << 40, (uint64_t{1} << 62) + 12345, ~uint64_t{0}}) {
    EXPECT_LT(TrainingWindowOf(9, windows - 1, windows), windows);
    EXPECT_NE(TrainingWindowOf(9, 0, windows), TrainingWindowOf(9, 1, windows));
  }
}

}  // namespace
}  // namespace longhaul
