// Any bytes as an answer of S3 or of a hub, and as an address: refused, or what was read is safe to
// use and prints to the same again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fuzz/target.h"
#include "base/http/host_rules.h"
#include "base/remote/address.h"
#include "base/remote/foreign.h"

LH_FUZZ_TARGET(remote_answers) {
  using namespace longhaul::remote;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool taken = false;
  if (const auto page = ParseBucketPage(text); page.ok()) {
    taken = true;
    for (const Entry& entry : page->entries) {
      if (entry.path.empty()) std::abort();
    }
  }
  if (!ErrorCodeOf(text).empty()) taken = true;
  if (const auto revision = ParseHubRevision(text); revision.ok()) {
    taken = true;
    if (revision->commit.size() < 40) std::abort();
  }
  if (const auto upload = ParseLargeUpload(text, 5000); upload.ok()) {
    taken = true;
    if (!upload->part_urls.empty() && upload->part_bytes == 0) std::abort();
  }
  if (ParseUploadModes(text).ok() || ParseHubCommit(text).ok()) taken = true;
  if (const auto address = ParseAddress(text); address.ok()) {
    taken = true;
    const auto again = ParseAddress(ToString(*address));
    if (!again.ok() || *again != *address) std::abort();
    const auto inside = Inside(*address, "a folder/a file");
    if (inside.ok() && inside->IsFolder()) std::abort();
  }
  return taken;
}
