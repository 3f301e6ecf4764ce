// Every fuzz target over its corpus and over mutations of it, the same ones each time: a defect
// that is near a seed is found in any build, without libFuzzer.
#include <gmock/gmock.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/fuzz/target.h"

namespace longhaul::fuzz {
namespace {

namespace fs = std::filesystem;

// Bodies that open databases, check keys, plan runs or dial for every input get fewer of them.
int RoundsOf(const std::string& target) {
  static const std::map<std::string, int> kFew = {
      {"dashboard_requests", 1'000}, {"http_answers", 300},       {"link_machine", 1'000},
      {"signing_request", 300},      {"standby_changes", 500},    {"store", 300},
      {"stream_frames", 1'000},      {"tensor_assembler", 1'000}, {"worker_reports", 300}};
  const auto few = kFew.find(target);
  return few == kFew.end() ? 5'000 : few->second;
}

struct Seed {
  std::string name, bytes;
};

std::vector<Seed> SeedsOf(const std::string& target) {
  std::vector<Seed> seeds;
  std::error_code none;
  for (const auto& entry :
       fs::directory_iterator(std::string(LONGHAUL_FUZZ_DIR "/corpus/") + target, none)) {
    seeds.push_back({entry.path().filename(), ReadFile(entry.path()).value_or("")});
  }
  std::ranges::sort(seeds, {}, &Seed::name);  // a folder has no order
  return seeds;
}

// The values of libFuzzer's dictionary of a target: name="value" a line, with \xNN, \" and \\.
std::vector<std::string> WordsOf(const std::string& target) {
  const std::string path = std::string(LONGHAUL_FUZZ_DIR "/dictionaries/") + target + ".dict";
  const std::string text = ReadFile(path).value_or("");
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t open = line.find('"');
    if (line.starts_with('#') || open == std::string::npos) continue;
    std::string word;
    for (size_t at = open + 1; at + 1 < line.size(); ++at) {
      if (line[at] == '\\' && line[at + 1] == 'x') {
        unsigned value = 0;
        std::from_chars(&line[at + 2], &line[at + 4], value, 16);
        word += static_cast<char>(value);
        at += 3;
      } else {
        if (line[at] == '\\') ++at;
        word += line[at];
      }
    }
    words.push_back(word);
  }
  return words;
}

// One to four changes: a bit, a byte, a piece left out or doubled, a word of the dictionary, a cut.
std::string Mutated(std::string bytes, const std::vector<std::string>& words,
                    std::mt19937& random) {
  for (unsigned changes = 1 + random() % 4; changes > 0 && !bytes.empty(); --changes) {
    const size_t at = random() % bytes.size();
    switch (random() % 8) {
      case 0:
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
        break;
      case 2:
        bytes[at] = static_cast<char>(random());
        break;
      case 3:
        bytes.erase(at, 1 + random() % 8);
        break;
      case 4:
        bytes.insert(at, bytes.substr(random() % bytes.size(), 1 + random() % 16));
        break;
      case 7:
        if (random() % 4 == 0) bytes.resize(at);
        break;
      default: {
        if (words.empty()) break;
        const std::string& word = words[random() % words.size()];
        bytes.replace(at, random() % 2 == 0 ? word.size() : 0, word);
      }
    }
  }
  return bytes;
}

bool Feed(Target target, const std::string& bytes) {
  // A copy of its own, so that AddressSanitizer sees what is read behind its end.
  const std::vector<uint8_t> data(bytes.begin(), bytes.end());
  return target(data.data(), data.size());
}

class FuzzTarget : public ::testing::TestWithParam<std::pair<const std::string, Target>> {};

TEST_P(FuzzTarget, TakesItsSeedsAndSurvivesWhatIsNearThem) {
  const auto& [name, target] = GetParam();
  const std::vector<Seed> seeds = SeedsOf(name);
  ASSERT_FALSE(seeds.empty()) << "no seeds in tests/fuzz/corpus/" << name;
  for (const Seed& seed : seeds) {
    EXPECT_EQ(Feed(target, seed.bytes), !seed.name.starts_with("refused")) << seed.name;
  }
  Feed(target, "");
  const std::vector<std::string> words = WordsOf(name);
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same bytes each time
  const int rounds = RoundsOf(name);
  int taken = 0;
  for (int round = 0; round < rounds; ++round) {
    const Seed& seed = seeds[static_cast<size_t>(round) % seeds.size()];
    taken += Feed(target, Mutated(seed.bytes, words, random)) ? 1 : 0;
  }
  // Both ways through the target, or the mutations test nothing.
  EXPECT_GT(taken, rounds / 200);
  EXPECT_LT(taken, rounds);
}

INSTANTIATE_TEST_SUITE_P(All, FuzzTarget, ::testing::ValuesIn(Targets()),
                         [](const auto& test) { return test.param.first; });

TEST(FuzzCorpus, EveryDictionaryHasWords) {
  for (const auto& entry : fs::directory_iterator(LONGHAUL_FUZZ_DIR "/dictionaries")) {
    EXPECT_FALSE(WordsOf(entry.path().stem()).empty()) << entry.path();
  }
}

}  // namespace
}  // namespace longhaul::fuzz
