// The folder of seeds that fuzz_corpus writes, and the parts of that program. Threads: one.
#pragma once

#include <fmt/core.h>

#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace longhaul {

class Corpus {
 public:
  explicit Corpus(std::string folder) : folder_(std::move(folder)) {}

  void Put(const std::string& target, const std::string& name, std::string_view bytes) const {
    const std::string path = folder_ + "/" + target;
    Must(MakeDirectories(path));
    Must(WriteFileAtomic(path + "/" + name, bytes));
  }
  void Put(const std::string& target, const std::string& name,
           std::span<const std::byte> bytes) const {
    Put(target, name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  static void Must(const Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "fuzz_corpus: {}\n", Message(status));
    std::exit(1);
  }

 private:
  const std::string folder_;
};

// What peers of links, relays and groups send (corpus_peers.cc).
void PutPeers(const Corpus& corpus);
// What members and servers send (corpus_members.cc).
void PutMembers(const Corpus& corpus);

}  // namespace longhaul
