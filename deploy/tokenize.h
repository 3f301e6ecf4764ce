// Tokenizes with Python (deploy/data/longhaul_data/tokens.py), which has the package tokenizers.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/samples.h"

namespace longhaul::cli {

// As TokenizeTexts (cli/samples.h). Starts Python and waits for it. kInvalidArgument: a text is not
// UTF-8. kFailedPrecondition: that of FindPythonProgram, or Python failed and has said why on
// standard error.
StatusOr<Tokenized> TokenizeByPython(const std::string& folder,
                                     const std::vector<std::string>& texts, bool chat);

}  // namespace longhaul::cli
