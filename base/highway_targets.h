// Before any of Highway's headers, so the headers of vectorised loops include it.
//
// Highway 1.0.3, Debian 12's, means to dispatch to AVX3_DL too when the compiler may use it anyway
// (-march=native on a CPU that has it) but looks at a macro that does not exist, and ends with a
// #error instead.
#pragma once

#if defined(__AVXVNNI__) && !defined(HWY_WANT_AVX3_DL)
#define HWY_WANT_AVX3_DL
#endif
