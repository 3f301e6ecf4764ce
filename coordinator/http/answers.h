// Answers of the dashboard's server. Internal to this folder.
#pragma once

#include <httplib.h>

#include <string>

#include "base/status.h"

namespace longhaul::coordinator {

// Sends {"error": SENTENCE} with the HTTP status that fits the code.
void Fail(const Status& status, httplib::Response* response);
// Sends JSON, or fails.
void Answer(StatusOr<std::string> text, httplib::Response* response);

}  // namespace longhaul::coordinator
