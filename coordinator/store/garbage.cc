#include "coordinator/store/garbage.h"

#include <fmt/core.h>

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/log.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kHashBytes = 32, kHexDigits = 64;

// Which of some blobs are named by lists, in hexadecimal digits or in bytes. A false alarm keeps a
// blob, so the text around a hash does not matter.
class Listed {
 public:
  explicit Listed(const std::vector<BlobStore::Entry>& candidates) {
    for (const BlobStore::Entry& one : candidates) {
      const std::string bytes = absl::HexStringToBytes(one.sha256);
      by_bytes_[bytes.substr(0, kKeyBytes)].push_back({bytes, one.sha256});
      by_digits_[one.sha256.substr(0, kKeyBytes)].push_back({one.sha256, one.sha256});
    }
  }

  void Look(std::string_view text) {
    for (size_t at = 0; at + kHashBytes <= text.size(); ++at) {
      const std::string key(text.substr(at, kKeyBytes));
      Find(by_bytes_, key, text.substr(at));
      Find(by_digits_, key, text.substr(at));
    }
  }

  const std::set<std::string>& found() const { return found_; }

 private:
  static constexpr size_t kKeyBytes = 8;  // fits into a string without memory of its own
  struct Candidate {
    std::string written, sha256;
  };
  using Table = std::unordered_map<std::string, std::vector<Candidate>>;

  void Find(const Table& table, const std::string& key, std::string_view text) {
    const auto some = table.find(key);
    if (some == table.end()) return;
    for (const Candidate& one : some->second) {
      if (text.starts_with(one.written)) found_.insert(one.sha256);
    }
  }

  Table by_bytes_, by_digits_;
  std::set<std::string> found_;
};

Status LookThrough(const BlobStore& blobs, const std::string& list, Listed* listed) {
  const StatusOr<BlobReader> reader = blobs.OpenBlob(list);
  // Nobody can learn what a missing list names.
  if (absl::IsNotFound(reader.status())) return absl::OkStatus();
  LH_RETURN_IF_ERROR(reader.status());
  return reader->LookThrough(kHexDigits, [listed](std::string_view piece) {
    listed->Look(piece);
    return true;
  });
}

struct Swept {
  uint64_t count = 0, bytes = 0;
};

StatusOr<Swept> Sweep(const BlobStore& store, const std::vector<BlobStore::Entry>& unnamed,
                      bool dry_run, absl::Duration age) {
  Swept swept;
  for (const BlobStore::Entry& one : unnamed) {
    bool goes = one.age >= age;
    if (!dry_run) {
      LH_ASSIGN_OR_RETURN(goes, store.RemoveUnclaimed(one.sha256, age));
    }
    if (!goes) continue;
    ++swept.count;
    swept.bytes += one.bytes;
  }
  return swept;
}

StatusOr<std::vector<BlobStore::Entry>> Unnamed(const BlobStore& store,
                                                const std::set<std::string>& named) {
  LH_ASSIGN_OR_RETURN(std::vector<BlobStore::Entry> entries, store.List());
  std::erase_if(entries, [&](const BlobStore::Entry& one) { return named.contains(one.sha256); });
  return entries;
}

Status SweepBlobs(const command::CollectGarbage& asked, const BlobStore& blobs, absl::Duration age,
                  v1::CollectGarbageReply* reply) {
  LH_ASSIGN_OR_RETURN(std::vector<BlobStore::Entry> unnamed, Unnamed(blobs, asked.named));
  Listed listed(unnamed);
  for (const std::string& list : asked.lists) {
    if (const Status status = LookThrough(blobs, list, &listed); !status.ok()) {
      reply->set_blobs_kept_because(
          fmt::format("the list {} of a run cannot be read: {}", list, Message(status)));
      return absl::OkStatus();
    }
  }
  std::erase_if(unnamed,
                [&](const BlobStore::Entry& one) { return listed.found().contains(one.sha256); });
  LH_ASSIGN_OR_RETURN(const Swept swept, Sweep(blobs, unnamed, asked.dry_run, age));
  reply->set_blobs(swept.count);
  reply->set_blob_bytes(swept.bytes);
  return absl::OkStatus();
}

}  // namespace

StatusOr<v1::CollectGarbageReply> CollectGarbage(const command::CollectGarbage& asked,
                                                 const BlobStore& blobs, const BlobStore& copies,
                                                 Store* store, absl::Duration age) {
  v1::CollectGarbageReply reply = asked.reply;
  for (const RunId& run : asked.trimmed) {
    LH_ASSIGN_OR_RETURN(const uint64_t rows,
                        store->TrimSteps(run, asked.keep_steps, asked.dry_run));
    reply.set_step_records(reply.step_records() + rows);
  }
  if (!reply.blobs_kept_because().empty()) return reply;
  LH_RETURN_IF_ERROR(SweepBlobs(asked, blobs, age, &reply));
  LH_ASSIGN_OR_RETURN(const std::vector<BlobStore::Entry> unnamed, Unnamed(copies, asked.copies));
  LH_ASSIGN_OR_RETURN(const Swept swept, Sweep(copies, unnamed, asked.dry_run, age));
  reply.set_copies(swept.count);
  reply.set_copy_bytes(swept.bytes);
  if (!asked.dry_run) {
    LogInfo("garbage: {} checkpoints, {} step records, {} blobs, {} copies of shards deleted",
            reply.checkpoints_size(), reply.step_records(), reply.blobs(), reply.copies());
  }
  return reply;
}

}  // namespace longhaul::coordinator
