# What doxygen reads in place of a header: the comment at its top is about the file, and each paragraph begins with its word. Lines keep their numbers.
1,2s|^// SPDX-License-Identifier: .*|/// @file|
s|^\( *///\) \(Shapes\|Memory\|Order\|Ranks\|Errors\|Threads\|Time\|Cost\|TF\|ABI:\) \(  *\)|\1 <p><b>\2</b> |
