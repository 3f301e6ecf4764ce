// Reads what servers answer: lists of S3 in XML, descriptions of a hub's repositories in JSON, and
// errors. The bytes are foreign: each function returns kDataLoss for all that is not of the
// expected form, and has a bound for each list. Pure functions: any thread may call them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/remote/store.h"
#include "base/status.h"

namespace longhaul::remote {

// One page of ListObjectsV2.
struct BucketPage {
  std::vector<Entry> entries;  // paths are whole keys
  std::string next;            // asks for the next page; empty: this is the last
};
StatusOr<BucketPage> ParseBucketPage(std::string_view xml);

// The name of the error in a document <Error><Code>NAME</Code>..., or "" if there is none. Letters
// and digits only.
std::string ErrorCodeOf(std::string_view xml);

// The text of the element `name` in the document's root, such as UploadId, or "".
std::string ElementOf(std::string_view xml, const char* root, const char* name);

// A hub's repository at one revision: GET /api/models/ORG/NAME/revision/REVISION?blobs=true.
struct HubRevision {
  std::string commit;
  std::vector<Entry> entries;
};
StatusOr<HubRevision> ParseHubRevision(std::string_view json);

// Whether a hub wants each file as a large one (LFS), by path: POST .../preupload/REVISION.
StatusOr<std::map<std::string, bool>> ParseUploadModes(std::string_view json);

// How a large file gets to a hub's store: POST .../info/lfs/objects/batch, for one file.
struct LargeUpload {
  // Where the file goes. Empty: the hub has it already.
  std::string url;
  std::vector<std::string> headers;  // "Name: value", for `url`
  // If not empty: the file goes to these addresses in parts of `part_bytes`, and `url` hears of
  // their ETags.
  std::vector<std::string> part_urls;
  uint64_t part_bytes = 0;
  // Hears, if not empty, that the file is there.
  std::string verify_url;
  std::vector<std::string> verify_headers;
};
StatusOr<LargeUpload> ParseLargeUpload(std::string_view json, uint64_t bytes);

// The commit that a hub has made: POST .../commit/REVISION.
StatusOr<std::string> ParseHubCommit(std::string_view json);

}  // namespace longhaul::remote
