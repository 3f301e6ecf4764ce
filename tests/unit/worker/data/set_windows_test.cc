// Windows of data sets against the same tokens in one piece.
#include "worker/data/set_windows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "run/data/sample_order.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kChunk = 4096;

// The tokens of a list, and how they lie in files.
struct Tokens {
  std::vector<uint32_t> ids;
  std::vector<bool> counts;
};

// Which nobody looks at here.
std::string HashesOf(uint64_t bytes) {
  return std::string(64 * ((bytes + kChunk - 1) / kChunk), '0');
}

// A data set in memory, with shards of any sizes.
class Files {
 public:
  explicit Files(uint64_t seed) : random_(seed) {}

  data::Source Add(const std::string& folder, uint32_t bytes_per_token, uint64_t training,
                   uint64_t validation, bool masks) {
    data::Source source{.folder = folder, .weight = 1, .set = {}};
    source.set.vocabulary = 500;
    source.set.bytes_per_token = bytes_per_token;
    source.set.chunk_bytes = kChunk;
    source.set.training = AddList(folder, "training", bytes_per_token, training, masks);
    source.set.validation = AddList(folder, "validation", bytes_per_token, validation, masks);
    return source;
  }
  const Tokens& Of(const std::string& folder, const std::string& list) const {
    return tokens_.at(folder + list);
  }
  FetchChunk fetch() {
    return [this](const data::Source& source, const data::HashedFile& file, uint64_t chunk,
                  const std::function<bool()>&) -> StatusOr<std::vector<std::byte>> {
      const std::vector<std::byte>& bytes = files_.at(source.folder + file.file);
      const auto begin = bytes.begin() + static_cast<int64_t>(file.offset + chunk * kChunk);
      const auto rest = static_cast<uint64_t>(bytes.end() - begin);
      return std::vector<std::byte>(begin, begin + static_cast<int64_t>(std::min(rest, kChunk)));
    };
  }

 private:
  data::TokenList AddList(const std::string& folder, const std::string& name, uint32_t width,
                          uint64_t count, bool masks) {
    Tokens& tokens = tokens_[folder + name];
    for (uint64_t i = 0; i < count; ++i) {
      tokens.ids.push_back(static_cast<uint32_t>(random_() % 500));
      tokens.counts.push_back(!masks || random_() % 3 != 0);
    }
    data::TokenList list;
    for (uint64_t at = 0; at < count;) {
      const uint64_t here = std::min<uint64_t>(count - at, 1 + random_() % 5000);
      data::Shard shard{.tokens = here, .ids = {}, .mask = {}};
      const std::string file = fmt::format("/{}-{}", name, list.shards.size());
      const bool masked = masks && list.shards.size() % 3 != 2;  // every third shard counts whole
      if (!masked) std::fill_n(tokens.counts.begin() + static_cast<int64_t>(at), here, true);
      const uint64_t offset = masked ? 0 : random_() % 50;
      std::vector<std::byte>& bytes = files_[folder + file + ".bin"];
      bytes.resize(offset + here * width);
      std::vector<std::byte> bits((here + 7) / 8);
      for (uint64_t i = 0; i < here; ++i) {
        std::memcpy(bytes.data() + offset + i * width, &tokens.ids[at + i], width);
        if (tokens.counts[at + i]) bits[i / 8] |= std::byte(1 << (i % 8));
      }
      shard.ids = {.file = file + ".bin",
                   .offset = offset,
                   .bytes = here * width,
                   .chunks = HashesOf(here * width)};
      if (masked) {
        files_[folder + file + ".mask"] = bits;
        shard.mask = {.file = file + ".mask",
                      .offset = 0,
                      .bytes = bits.size(),
                      .chunks = HashesOf(bits.size())};
      }
      list.shards.push_back(std::move(shard));
      at += here;
    }
    return list;
  }

  std::mt19937_64 random_;
  std::map<std::string, std::vector<std::byte>> files_;
  std::map<std::string, Tokens> tokens_;
};

std::unique_ptr<WindowSource> WindowsOfAll(const data::Mixture& mixture, uint32_t context,
                                           double share, uint64_t memory, const FetchChunk& fetch) {
  return WindowsOfSets({.chunks = std::make_shared<SetChunks>(SetChunksOptions{
                            .mixture = std::make_shared<const data::Mixture>(mixture),
                            .memory_bytes = memory,
                            .from_place = fetch,
                            .from_coordinator = fetch}),
                        .context = context,
                        .validation_share = share});
}

TEST(WindowsOfSets, AreThoseOfTheTokensInOnePiece) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20; ++round) {
    Files files(random());
    const bool masks = round % 2 == 1, held_out = round % 4 < 2;
    const auto context = static_cast<uint32_t>(3 + random() % 100);
    const data::Mixture mixture{
        {files.Add("/a", round % 3 == 0 ? 4 : 2, 9000 + random() % 9000, held_out ? 700 : 0, masks),
         files.Add("/b", 2, 200 + random() % 9000, held_out ? 300 : 0, masks)}};
    const auto windows =
        WindowsOfAll(mixture, context, 0.1, round < 10 ? 3 * kChunk : 1 << 20, files.fetch());
    const auto sources = data::WindowsOfSources(mixture, context, 0.1);
    ASSERT_EQ(windows->WindowsOf(Text::kTraining), sources[0].training + sources[1].training);
    ASSERT_EQ(windows->WindowsOf(Text::kValidation), sources[0].validation + sources[1].validation);
    for (const Text text : {Text::kTraining, Text::kValidation}) {
      const uint64_t count = windows->WindowsOf(text);
      for (int i = 0; i < 60; ++i) {
        uint64_t window = i == 0 ? 0 : i == 1 ? count - 1 : random() % count;
        std::vector<int32_t> inputs(context), targets(context);
        windows->Expect(text, std::vector<uint64_t>{window, (window + 1) % count});
        const Status status = windows->Read(text, window, inputs, targets);
        ASSERT_TRUE(status.ok()) << status;
        size_t source = 0;
        const auto of = [&](size_t s) {
          return text == Text::kTraining ? sources[s].training : sources[s].validation;
        };
        while (window >= of(source)) window -= of(source++);
        const bool list = text == Text::kValidation && held_out;
        const Tokens& tokens =
            files.Of(source == 0 ? "/a" : "/b", list ? "validation" : "training");
        const uint64_t begin =
            window * context +
            (text == Text::kValidation && !held_out ? sources[source].training_tokens : 0);
        for (uint32_t t = 0; t < context; ++t) {
          ASSERT_EQ(inputs[t], static_cast<int32_t>(tokens.ids[begin + t]));
          const int32_t next = static_cast<int32_t>(tokens.ids[begin + t + 1]);
          ASSERT_EQ(targets[t], tokens.counts[begin + t + 1] ? next : -1);
        }
      }
    }
  }
}

TEST(WindowsOfSets, AnIdBeyondTheVocabularyIsNamed) {
  Files files(1);
  data::Mixture mixture{{files.Add("/a", 2, 400, 0, false)}};
  mixture.sources[0].set.vocabulary = 10;
  const auto windows = WindowsOfAll(mixture, 16, 0, 1 << 20, files.fetch());
  std::vector<int32_t> inputs(16), targets(16);
  const Status status = windows->Read(Text::kTraining, 0, inputs, targets);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("of a vocabulary of 10"));
}

TEST(WindowsOfSets, WhatCannotBeHadIsAnErrorAndNotTheEnd) {
  Files files(1);
  const data::Mixture mixture{{files.Add("/a", 2, 400, 0, false)}};
  std::atomic<bool> away = true;
  const FetchChunk all = files.fetch();
  const auto windows = WindowsOfAll(mixture, 16, 0, 1 << 20,
                                    [&](const auto&... what) -> StatusOr<std::vector<std::byte>> {
                                      if (away) return absl::UnavailableError("nobody has it");
                                      return all(what...);
                                    });
  std::vector<int32_t> inputs(16), targets(16);
  EXPECT_TRUE(absl::IsUnavailable(windows->Read(Text::kTraining, 3, inputs, targets)));
  away = false;
  EXPECT_TRUE(windows->Read(Text::kTraining, 3, inputs, targets).ok());
  EXPECT_EQ(inputs[0], static_cast<int32_t>(files.Of("/a", "training").ids[48]));
}

}  // namespace
}  // namespace longhaul::worker
