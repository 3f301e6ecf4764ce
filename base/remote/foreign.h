// Reads what servers answer: lists of S3 in XML, descriptions of a hub's repositories in JSON, and
// errors. The bytes are foreign: each function returns kDataLoss for all that is not of the
// expected form, and has a bound for each list. Pure functions: any thread may call them.
#pragma once

#include <cstdint>
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

}  // namespace longhaul::remote
