// Two functions of glibc's that an unwinder calls which was compiled for it (`.ci/elsewhere`).
#include <stdarg.h>
#include <stdio.h>

int __vfprintf_chk(FILE *file, int flag, const char *format, va_list values) {
    (void)flag;
    return vfprintf(file, format, values);
}

int __vsnprintf_chk(char *text, size_t length, int flag, size_t room, const char *format, va_list values) {
    (void)flag, (void)room;
    return vsnprintf(text, length, format, values);
}
